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
"""
"""What is known of each file, and each thing known of it, by the views `provenance` and `relations`."""
