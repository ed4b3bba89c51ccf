"""The views that `waybill sql` offers beside the records."""

from __future__ import annotations

from typing import Final

CORRELATION_VIEWS: Final = """
CREATE VIEW correlation_event AS
SELECT did AS id_event, process, version, fingerprint, input_size, event_time, coalesce(forced, 0) AS forced
FROM (
    SELECT did, max(data_source) AS process, epoch_ms(min(created)) AS event_time FROM provenance GROUP BY did
) LEFT JOIN (
    SELECT
        did,
        max(value) FILTER (kind = 'version') AS version,
        max(value) FILTER (kind = 'fingerprint') AS fingerprint,
        max(TRY_CAST(value AS BIGINT)) FILTER (kind = 'input_bytes') AS input_size,
        max(1) FILTER (kind = 'forced') AS forced
    FROM relations GROUP BY did
) USING (did);

CREATE VIEW correlation_details AS
SELECT did AS id_event, field, to_json(found) AS JSON FROM (
    SELECT did, 'filename' AS field, max(filename) AS found FROM provenance WHERE filename <> '' GROUP BY did
    UNION ALL SELECT did, 'system', max(system_name) FROM provenance GROUP BY did
)
UNION ALL
SELECT did, field, to_json(list(DISTINCT found ORDER BY found)) FROM (
    SELECT did, 'states' AS field, final_state AS found FROM provenance
    UNION ALL SELECT did, 'sinks', data_sink FROM provenance WHERE data_sink IS NOT NULL
    UNION ALL SELECT did, 'inputs', value FROM relations WHERE kind = 'input'
    UNION ALL SELECT did, 'producers', value FROM relations WHERE kind = 'producer'
) GROUP BY did, field;

CREATE VIEW correlation_lineage AS
WITH RECURSIVE edge AS (
    SELECT parent_did AS parent, did FROM provenance WHERE parent_did IS NOT NULL
    UNION SELECT value, did FROM relations WHERE kind = 'parent'
),
found (id_parent, id_child, depth) USING KEY (id_parent, id_child) AS (
    SELECT did, did, 0 FROM (SELECT did FROM provenance UNION FROM edge SELECT unnest([parent, did]))
    UNION
    SELECT DISTINCT found.id_parent, edge.did, found.depth + 1
    FROM found JOIN edge ON edge.parent = found.id_child
    ANTI JOIN recurring.found AS nearer ON nearer.id_parent = found.id_parent AND nearer.id_child = edge.did
)
FROM found;
"""
"""What is known of each file, each thing known of it, and all its ancestors with the length of the shortest
way, by the views `provenance` and `relations`."""
