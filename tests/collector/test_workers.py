"""`waybill serve --workers`: several processes at one address, over one journal."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from served import JSON, Collector, event, own, reply_of
from waiting import wait_until

from waybill.transport import Journal, locks

if TYPE_CHECKING:
    from conftest import Start

PATH = "/api/v1/lineage"
WAIT_S = 30.0


def workers_of(collector: Collector) -> set[int]:
    pid = collector.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return {int(child) for child in children}


def lives(pid: int) -> bool:
    """Whether a process is at work; one whose end nobody has asked for yet is not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    return False


def counted(collector: Collector) -> int:
    text = collector.get("/metrics").body.decode()
    found = re.search(r'^waybill_accepted_total\{kind="openlineage"\} (\d+)$', text, re.MULTILINE)
    return int(found[1]) if found else 0


def worker_by_port(collector: Collector) -> dict[int, int]:
    """By the port at a client's end of a connection, which worker has the other end."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    ports = {f"socket:[{words[9]}]": int(words[2].partition(":")[2], 16) for words in map(str.split, lines)}
    found = {}
    for pid in workers_of(collector):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[ports.get(str(descriptor.readlink()), 0)] = pid
    return found


class Sender(threading.Thread):
    """Sends until it is told to stop, with a new connection whenever one breaks, and notes the receipts."""

    def __init__(self, collector: Collector, number: int) -> None:
        super().__init__(daemon=True)
        self.receipts: dict[str, bytes] = {}
        self.port = 0
        self.broken = 0
        self.stop = False
        self._collector = collector
        self._number = number

    def run(self) -> None:
        connection, at = self._collector.connect(), 0
        while not self.stop:
            body = own(f"{self._number}-{at}")
            try:
                reply = reply_of(connection, "POST", PATH, body, JSON)
            except (OSError, http.client.HTTPException):
                self.broken += 1
                connection.close()
                continue
            self.port = connection.sock.getsockname()[1]
            if reply.status == 503:  # the disk of a busy machine
                continue
            assert reply.status == 201, reply
            self.receipts[reply.headers["waybill-receipt"]] = body
            at += 1
        connection.close()


def test_a_worker_that_is_killed_costs_the_others_nothing_and_is_replaced(start: Start) -> None:
    collector = start("--runner", "none", "--workers", "3")
    first = workers_of(collector)
    assert len(first) == 3
    senders = [Sender(collector, number) for number in range(12)]
    for sender in senders:
        sender.start()
    wait_until(lambda: all(sender.receipts for sender in senders), WAIT_S)
    workers = worker_by_port(collector)
    victim = workers[senders[0].port]
    others = [sender for sender in senders if workers[sender.port] != victim]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(workers_of(collector) - {victim}) >= 3, WAIT_S)
    time.sleep(1)
    for sender in senders:
        sender.stop = True
    for sender in senders:
        sender.join(WAIT_S)
        assert not sender.is_alive()
    # Who connects again may meet the dead one's socket before it goes.
    assert (senders[0].broken > 0, others != [], [sender.broken for sender in others if sender.broken]) == (
        True,
        True,
        [],
    )
    assert first - {victim} <= workers_of(collector)

    receipts = {receipt: body for sender in senders for receipt, body in sender.receipts.items()}
    assert len(receipts) == sum(len(sender.receipts) for sender in senders)
    journal = Journal(collector.home)
    kept = {f"{journal.node}-{entry.seq}": entry.body for entry in journal.read(0, limit=10**6)}
    journal.close()
    assert receipts.items() <= kept.items()
    code, log = collector.stop()
    assert code == 0
    assert f"process {victim}) has ended: signal 9" in log
    assert not locks.is_held(collector.home, "collector")


def test_any_worker_tells_what_all_have_counted(start: Start) -> None:
    collector = start("--runner", "none", "--workers", "2", "--log-level", "error")
    for number in range(40):  # a connection each, so that both workers get some
        assert collector.post(PATH, own(number)).status == 201
    wait_until(lambda: {counted(collector) for _ in range(8)} == {40}, WAIT_S)
    code, log = collector.stop()
    assert (code, log) == (0, "")


def test_workers_end_with_the_process_that_looks_after_them(start: Start) -> None:
    collector = start("--runner", "none", "--workers", "2")
    workers = workers_of(collector)
    collector.process.kill()
    collector.process.communicate()
    wait_until(lambda: not any(lives(pid) for pid in workers), WAIT_S)
    assert start("--runner", "none").post(PATH, event()).status == 201
