"""A process that has run out of something else than disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

from openlineage.client import OpenLineageClient
from seam.emissions import emission
from seam.emitter import events_of
from seam.homes import kill_runner, settings_in
from seam.ledger import Ledger, Teller, run_in_process
from seam.oracle import recover_and_check

from waybill.transport import WaybillConfig, WaybillTransport

AFTER_THE_NEXT_LOOK_S = 2.1
"""Having started a runner, an emitter looks after it two seconds later."""


def test_a_pipeline_without_a_free_descriptor_emits_all_the_same(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    given = {"home": settings.home, "root": settings.root, "provenance_enabled": True}

    def work(teller: Teller) -> None:
        client = OpenLineageClient(transport=WaybillTransport(WaybillConfig.from_dict(given)))

        def emit(number: int) -> None:
            teller.tell("offer", number)
            for event in events_of(emission(number)):
                client.emit(event)
            teller.tell("ack", number)

        emit(0)
        try:
            while True:
                os.open(os.devnull, os.O_RDONLY)
        except OSError:
            pass
        time.sleep(AFTER_THE_NEXT_LOOK_S)
        emit(1)

    ledger = Ledger()
    try:
        run_in_process(work, ledger)
    finally:
        kill_runner(settings.home)
    assert ledger.acknowledged == {0, 1}, ledger.faults
    recover_and_check(settings, ledger)
