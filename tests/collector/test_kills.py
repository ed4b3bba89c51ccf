"""Collectors and runners killed under load by clients that write down what was acknowledged."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from served import COMPLETED_MS, JSON, Collector, record, reply_of

from waybill.transport import Settings, flush, locks

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENTS = 4
RECORDS = 20
ROUNDS = 3
LIFE_S_MAX = 1.5
HOUR_MS = 3_600_000


class Client(threading.Thread):
    """Sends until its collector is gone; what was not acknowledged goes first to the next one."""

    def __init__(self, address: str, batches: Iterator[list[str]], unsure: list[list[str]]) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[str] = []
        self.unsure = unsure
        self._address = address
        self._batches = batches

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            while True:
                self.unsure = self.unsure or [next(self._batches)]
                reply = reply_of(connection, "POST", "/provenance", self._body(), JSON)
                assert reply.status in {202, 503}, reply
                if reply.status == 202:
                    self.acknowledged += self.unsure.pop()
        except (OSError, http.client.HTTPException):
            connection.close()

    def _body(self) -> bytes:
        dids = self.unsure[-1]
        # An hour of its own for each batch in turn, so that files of several hours are under way.
        completed = COMPLETED_MS + (hash(dids[0]) % 3) * HOUR_MS
        return json.dumps([record(did=did, completed=completed) for did in dids]).encode()


def batches_of(client: int) -> Iterator[list[str]]:
    for number in itertools.count():
        yield [f"{client}-{number}-{at}" for at in range(RECORDS)]


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_or_doubled_by_kills(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - chance, not secrets
    home, root = tmp_path / "home", tmp_path / "root"
    options = ("--provenance-enabled", "--root", str(root), "--drain-timeout", "30", "--log-level", "error")
    batches = [batches_of(client) for client in range(CLIENTS)]
    unsure: list[list[list[str]]] = [[] for _ in range(CLIENTS)]
    acknowledged: list[str] = []
    for at in range(ROUNDS):
        last = at == ROUNDS - 1
        collector = Collector(home, *options)
        clients = [Client(collector.address, *one) for one in zip(batches, unsure, strict=True)]
        for client in clients:
            client.start()
        time.sleep(0.2 + chance.random() * LIFE_S_MAX)
        if last:
            code, log = collector.stop()
            assert (code, log) == (0, "")
        else:
            collector.process.kill()
            collector.process.communicate()
        if not last and chance.random() < 0.5 and (runner := locks.holder(home)):
            os.kill(runner, signal.SIGKILL)
        for client in clients:
            client.join(30)
            assert not client.is_alive()
        acknowledged += [did for client in clients for did in client.acknowledged]
        unsure = [client.unsure for client in clients]
    assert len(acknowledged) > ROUNDS * RECORDS
    settings = Settings.load(
        {"home": home, "root": root, "provenance_enabled": True}, origin="tests", env={}, cwd=tmp_path
    )
    report = flush(settings, timeout_s=120)
    assert (report.left, report.problems) == ({}, {})
    table = ds.dataset(str(root / "provenance" / "compacted"), format="parquet").to_table(columns=["did"])
    rows = Counter(table["did"].to_pylist())
    offered = {did for one in unsure for several in one for did in several} | set(acknowledged)
    assert [did for did, count in rows.items() if count > 1] == []
    assert set(acknowledged) - rows.keys() == set()
    assert rows.keys() - offered == set()
