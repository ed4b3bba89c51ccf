"""Follow a model from the raw files to what it predicts, with each training as a version of it."""

from __future__ import annotations

import tempfile

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import DatasetFacet, dataset_version_dataset
from openlineage.client.uuid import generate_new_uuid

from waybill import Lineage, Settings
from waybill.lineage.graph import shown
from waybill.transport import WaybillConfig, WaybillTransport

STEPS = {
    "take_snapshot": (["s3://lake/orders"], "s3://ml/snapshots/orders"),
    "make_features": (["s3://ml/snapshots/orders"], "s3://ml/features/churn"),
    "train": (["s3://ml/features/churn"], "models/churn"),
    "predict": (["models/churn", "s3://lake/customers"], "s3://lake/churn_risk"),
}


def ended(job: str, model_version: str) -> RunEvent:
    """Return the event that says that a job has ended, and which version of the model it wrote or read."""

    def located(name: str) -> tuple[str, str]:
        namespace, _, short = name.rpartition("/")
        return namespace, short

    def versioned(name: str) -> dict[str, DatasetFacet]:
        facet = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=model_version)
        return {"version": facet} if name.startswith("models/") else {}

    inputs, output = STEPS[job]
    return RunEvent(
        eventTime="2026-01-31T12:00:00.000Z",
        eventType=RunState.COMPLETE,
        run=Run(str(generate_new_uuid())),
        job=Job("nightly", job),
        producer="https://example.org/training",
        inputs=[InputDataset(*located(name), facets=versioned(name)) for name in inputs],
        outputs=[OutputDataset(*located(output), facets=versioned(output))],
    )


def main() -> None:
    """Send the events of one night, and ask where the predictions come from."""
    with tempfile.TemporaryDirectory() as folder:
        # A temporary home and no runner, so that nothing is left behind.
        settings = Settings.load({"home": folder, "runner": "none", "provenance_enabled": True})
        client = OpenLineageClient(transport=WaybillTransport(WaybillConfig(settings)))
        for job in STEPS:
            client.emit(ended(job, "2026-01-31"))
        client.close()

        lineage = Lineage.open(settings.home)
        for reached in lineage.upstream("s3://lake/churn_risk"):
            print(f"{reached.distance}  {shown(reached.node)}")
        print("a change of the orders reaches:")
        for impacted in lineage.impact("s3://lake/orders").nodes:
            print(f"{impacted.distance}  {shown(impacted.node)}")


if __name__ == "__main__":
    main()
