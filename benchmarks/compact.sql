-- DuckDB's compaction of records: the same merge of repeats, order, partitions and compression as Waybill's. The source
-- is a table of records; out is a folder.
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
        FROM $source
        GROUP BY did, system_name, transforms, data_sink, final_state, completed
    )
    ORDER BY completed, did
)
TO '$out' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (system_name, day, hour), WRITE_PARTITION_COLUMNS);
