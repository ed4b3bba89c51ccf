-- The rebuild of benchmarks/spark.py in plain Spark SQL: the same facets from the same JSON lines, the same merge of
-- repeats, order and partitions. `lines` is a view of the file's lines in the column `value`.
SELECT
    did, parent_did, system_name, data_source, filename, transforms, data_sink, final_state, created, completed,
    CASE
        WHEN size(maps) = 1 THEN maps[0]
        WHEN size(keys) > 0
            THEN map_from_arrays(keys, transform(keys, k -> array_max(transform(maps, m -> m[k]))))
    END AS annotations,
    date_format(completed, 'yyyyMMdd') AS day,
    date_format(completed, 'HH') AS hour
FROM (
    SELECT
        did, system_name, transforms, data_sink, final_state, completed,
        max(parent_did) AS parent_did,
        max(data_source) AS data_source,
        max(filename) AS filename,
        min(created) AS created,
        collect_list(annotations) AS maps,
        array_sort(array_distinct(flatten(transform(collect_list(annotations), m -> map_keys(m))))) AS keys
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
            CAST(facet.created AS TIMESTAMP) AS created,
            CAST(facet.completed AS TIMESTAMP) AS completed,
            facet.annotations AS annotations
        FROM (
            SELECT event.run.facets.waybill_deltaFile AS facet
            FROM (
                SELECT from_json(
                    value,
                    'eventType STRING, run STRUCT<facets: STRUCT<waybill_deltaFile: STRUCT<
                        did: STRING, parentDid: STRING, systemName: STRING, dataSource: STRING, filename: STRING,
                        transforms: ARRAY<STRING>, dataSink: STRING, finalState: STRING, created: STRING,
                        completed: STRING, annotations: MAP<STRING, STRING>>>>'
                ) AS event
                FROM lines
            )
            WHERE event.eventType IN ('COMPLETE', 'FAIL', 'ABORT')
        )
        WHERE facet IS NOT NULL
    )
    GROUP BY did, system_name, transforms, data_sink, final_state, completed
)
DISTRIBUTE BY system_name, day, hour
SORT BY system_name, day, hour, completed, did
