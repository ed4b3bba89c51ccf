"""Put Waybill's facet on your own OpenLineage event, then print the resulting record."""

from __future__ import annotations

import tempfile

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.uuid import generate_new_uuid

from waybill import Settings, facets
from waybill.facets import DELTA_FILE_FACET, FinalState, WaybillDeltaFileRunFacet, decode_event, fold
from waybill.transport import Journal, WaybillConfig, WaybillTransport


def loaded(filename: str) -> RunEvent:
    """Return the event that says that a file was loaded, the only event about that file."""
    run_id = str(generate_new_uuid())
    facet = WaybillDeltaFileRunFacet(
        did=run_id,
        systemName="edge-7",
        filename=filename,
        dataSource="sftp-in",
        transforms=["decompress", "load"],
        dataSink="warehouse",
        finalState=FinalState.COMPLETE,
        annotations={"publisher": "acme"},
    )
    return RunEvent(
        eventTime="2026-01-31T12:00:00.000Z",
        eventType=RunState.COMPLETE,
        run=Run(run_id, {DELTA_FILE_FACET: facet}),
        job=Job("example", "load-orders"),
        producer="https://example.org/my-pipeline",
    )


def main() -> None:
    """Send the event, and print the record."""
    with tempfile.TemporaryDirectory() as folder:
        # A temporary home and no runner, so that nothing is left behind.
        settings = Settings.load({"home": folder, "runner": "none", "provenance_enabled": True})
        client = OpenLineageClient(transport=WaybillTransport(WaybillConfig(settings)))
        client.emit(loaded("orders.csv.gz"))
        client.close()

        journal = Journal(settings.home)
        events = [decode_event(entry.body) for entry in journal.read(after=0)]
        journal.close()
    for record in fold([event for event in events if isinstance(event, facets.RunEvent)], system_name="edge"):
        way = " > ".join([record.data_source, *record.transforms, record.data_sink or "-"])
        print(f"{record.final_state} {record.filename} in {record.system_name}: {way}")


if __name__ == "__main__":
    main()
