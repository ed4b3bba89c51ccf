-- DuckDB's reading of the records in the facets of JSON lines, as a source for compact.sql. The lines are a file.
(
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
