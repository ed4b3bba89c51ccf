"""A collector whose disk is nearly full, where this user may mount one."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from calling import call
from served import event
from small_disks import fill_disk, mounted_tmpfs

from waybill.exporter.health import ROOM_BYTES_MIN

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Open

PATH = "/api/v1/lineage"
BATCH_BYTES = ROOM_BYTES_MIN // 2
"""While a collector is ready, a body of this size can be stored."""


def large_event() -> bytes:
    """An event that is as large as a batch, and does not get smaller when it is packed."""
    return event(producer=secrets.token_hex(BATCH_BYTES // 2))


def test_a_collector_is_ready_while_its_disk_takes_a_batch_busy_when_it_is_full_and_goes_on_with_room(
    inside: Open, tmp_path: Path
) -> None:
    with mounted_tmpfs(tmp_path / "disk") as disk:
        collector, acknowledged = inside(home=disk / "home"), []
        assert collector.get("/health/ready").status == 200
        filler = fill_disk(disk, but_bytes=8 * BATCH_BYTES)
        while (ready := collector.get("/health/ready")).status == 200:
            acknowledged.append(large_event())
            assert collector.post(PATH, acknowledged[-1]).status == 201
        assert len(acknowledged) > 2
        assert "free space there" in ready.json["problems"]["journal"]
        status = call("status", "--home", collector.home)
        assert (status.returncode, "free space there" in status.stdout) == (1, True), status.stderr
        while (reply := collector.post(PATH, body := large_event())).status == 201:
            acknowledged.append(body)
        assert (reply.status, reply.headers["retry-after"]) == (503, "2")
        assert collector.get("/health/live").status == 200
        filler.unlink()
        assert collector.post(PATH, event()).status == 201
        assert collector.get("/health/ready").json["ready"] is True
        assert collector.bodies() == [*acknowledged, event()]
        collector.close()
