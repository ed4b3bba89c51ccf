"""A pipeline as users write one, to be killed: ``python emitter.py HOME ROOT FIRST DURABILITY``.

It emits events through the OpenLineage client without end, one after the other, and reports on stdout what it
is about to emit and what was acknowledged.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from seam.emissions import Emission, emission, instant
from seam.ledger import Teller

from waybill.facets.delta_file import WaybillDeltaFileRunFacet
from waybill.transport import WaybillConfig, WaybillError, WaybillTransport

if TYPE_CHECKING:
    from openlineage.client.generated.base import RunFacet

PAUSE_S = float(os.environ.get("EMITTER_PAUSE_S", "0.001"))
PRODUCER = "https://example.org/faults"
WITH_RECORDS = 2
"""Numbers with this remainder modulo three are DeltaFi's records, which no OpenLineage client sends."""


def main(home: Path, root: Path, first: int, durability: str) -> None:
    """Emit until somebody kills this process."""
    settings = {"home": home, "root": root, "provenance_enabled": True, "durability": durability}
    client = OpenLineageClient(transport=WaybillTransport(WaybillConfig.from_dict(settings)))
    teller = Teller(sys.stdout.fileno())
    for number in itertools.count(first):
        if number % 3 == WITH_RECORDS:
            continue
        teller.tell("offer", number)
        try:
            for event in events_of(emission(number)):
                client.emit(event)
        except WaybillError as error:
            teller.tell("refuse", [number, type(error).__name__])
        else:
            teller.tell("ack", number)
        time.sleep(PAUSE_S)


def events_of(one: Emission) -> list[RunEvent]:
    """The emission as events of the client."""
    record, bodies = one.record, [json.loads(body) for _, body, _ in one.items]
    facets: dict[str, RunFacet] = {}
    if len(bodies) == 1:
        facets["waybill_deltaFile"] = WaybillDeltaFileRunFacet(
            did=record.did,
            systemName=record.system_name,
            dataSource=record.data_source,
            filename=record.filename,
            transforms=list(record.transforms),
            dataSink=record.data_sink,
            finalState=record.final_state,
            created=instant(record.created),
            completed=instant(record.completed),
        )
    return [
        RunEvent(
            eventTime=body["eventTime"],
            eventType=RunState(body["eventType"]),
            run=Run(record.did, facets),
            job=Job(**body["job"]),
            producer=PRODUCER,
            inputs=[InputDataset(**dataset) for dataset in body.get("inputs", [])],
            outputs=[OutputDataset(**dataset) for dataset in body.get("outputs", [])],
        )
        for body in bodies
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
