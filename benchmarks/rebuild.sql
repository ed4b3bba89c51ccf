-- The rebuild of benchmarks/rebuild.py as DuckDB does it: the same facets out of the same JSON lines, the same merge of
-- repeats, order, partitions and compression. $lines is a file, $out a folder.
COPY (
    SELECT
        did, parent_did, system_name, data_source, filename, transforms, data_sink, final_state, created, completed,
        CASE
            WHEN len(maps) = 1 THEN maps[1]
            WHEN keys = [] THEN NULL
            ELSE map(keys, list_transform(keys, lambda k: list_max(list_transform(maps, lambda m: m[k]))))
        END AS annotations,
        strftime(completed, '%Y%m%d') AS day,
        strftime(completed, '%H') AS hour
    FROM (
        SELECT
            did, system_name, transforms, data_sink, final_state, completed,
            max(parent_did) AS parent_did,
            max(data_source) AS data_source,
            max(filename) AS filename,
            min(created) AS created,
            list(annotations) AS maps,
            CASE WHEN count(*) > 1 THEN list_sort(list_distinct(flatten(list(map_keys(annotations))))) END AS keys
        FROM (
            SELECT
                facet.did AS did,
                facet.parentDid AS parent_did,
                facet.systemName AS system_name,
                facet.dataSource AS data_source,
                facet.filename AS filename,
                facet.transforms AS transforms,
                facet.dataSink AS data_sink,
                facet.finalState AS final_state,
                facet.created::TIMESTAMPTZ AS created,
                facet.completed::TIMESTAMPTZ AS completed,
                facet.annotations AS annotations
            FROM (
                SELECT run.facets.waybill_deltaFile AS facet
                FROM read_json(
                    '$lines',
                    format = 'newline_delimited',
                    columns = {
                        eventType: 'VARCHAR',
                        run: 'STRUCT(facets STRUCT(waybill_deltaFile STRUCT(
                            did VARCHAR, parentDid VARCHAR, systemName VARCHAR, dataSource VARCHAR, filename VARCHAR,
                            transforms VARCHAR[], dataSink VARCHAR, finalState VARCHAR, created VARCHAR,
                            completed VARCHAR, annotations MAP(VARCHAR, VARCHAR))))'
                    }
                )
                WHERE eventType IN ('COMPLETE', 'FAIL', 'ABORT')
            )
            WHERE facet IS NOT NULL
        )
        GROUP BY did, system_name, transforms, data_sink, final_state, completed
    )
    ORDER BY completed, did
)
TO '$out' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (system_name, day, hour), WRITE_PARTITION_COLUMNS);
