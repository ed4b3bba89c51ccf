"""The storm: faults of processes, disks and clocks, at random, while a town is working.

The seed decides which faults come and when, so a storm can be repeated as closely as processes allow. Faults
overlap.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from seam.chance import chance_from
from seam.oracle import compare, read_compacted
from seam.town import Town, runner_of

_ENDS_WITHIN_S: Final = 60.0
_UNDER_WAY_S: Final = 2.0
_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600
_DESCRIPTORS: Final = 24


class Storm:
    """The faults that hit a town.

    Attributes:
        happened: how often each fault came.
    """

    def __init__(self, town: Town, seed: int) -> None:
        self.happened: Counter[str] = Counter()
        self._town = town
        self._chance = chance_from(seed, "storm")
        self._endings: list[tuple[float, Callable[[], object]]] = []
        self._starved: set[tuple[int, int]] = set()

    def blow(self, seconds: float) -> None:
        """Make faults for this long."""
        until_s = time.monotonic() + seconds
        faults = self._faults()
        while time.monotonic() < until_s:
            time.sleep(0.1 + 1.4 * self._chance.random())
            self._end_faults(time.monotonic())
            self._town.keep_collector()
            self._town.keep_emitters()
            fault = self._chance.choices([one for one, _ in faults], [weight for _, weight in faults])[0]
            name = fault.__name__.strip("_")
            self._town.note(name)
            if fault() is not False:
                self.happened[name] += 1
        self._end_faults(float("inf"))

    def check(self) -> None:
        """Stop the faults, file everything, and compare the layout with the ledger."""
        self._town.pause()
        self._town.kill_all()
        self._town.end_senders()
        self._town.flush()
        left = self._town.findings()
        assert not left, f"findings: {left[:5]}"
        assert not self._town.ledger.faults, "\n".join(self._town.ledger.faults[:10])
        rows = read_compacted(self._town.root)
        lost, invented = compare(rows, self._town.ledger)
        assert not lost, f"{len(lost)} acknowledged and lost: {lost[:3]}"
        assert not invented, f"{len(invented)} that nobody emitted, or twice: {invented[:3]}"

    # -- the faults -----------------------------------------------------------------------------------------

    def _faults(self) -> list[tuple[Callable[[], object], float]]:
        faults: list[tuple[Callable[[], object], float]] = [
            (self._kill_runner, 4),
            (self._kill_collector, 2),
            (self._end_collector, 2),
            (self._kill_an_emitter, 4),
            (self._freeze_the_runner, 1),
            (self._unmount_the_root, 1),
            (self._take_the_room, 2),
            (self._take_the_inodes, 1),
            (self._shift_the_clock, 2),
            (self._take_the_descriptors, 1),
            (self._flush_now, 1),
        ]
        return faults

    def _later(self, seconds: float, ending: Callable[[], object]) -> None:
        self._endings.append((time.monotonic() + seconds, ending))

    def _end_faults(self, now_s: float) -> None:
        due = [ending for at_s, ending in self._endings if at_s <= now_s]
        self._endings = [one for one in self._endings if one[0] > now_s]
        for ending in due:
            ending()

    def _kill_runner(self) -> None:
        self._town.kill_runner()

    def _kill_collector(self) -> None:
        assert self._town.collector is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._town.collector.pid, signal.SIGKILL)
        self._town.collector.wait()

    def _end_collector(self) -> None:
        assert self._town.collector is not None
        self._town.collector.send_signal(signal.SIGTERM)
        try:
            self._town.collector.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._town.ledger.faults.append(f"SIGTERM does not end the collector within {_ENDS_WITHIN_S} s")
            self._kill_collector()

    def _kill_an_emitter(self) -> None:
        self._town.end_emitter(self._town.emitters.pop(self._chance.randrange(len(self._town.emitters))))

    def _flush_now(self) -> None:
        self._town.waybill("flush", "--timeout", "20", may_fail=True)

    def _freeze_the_runner(self) -> bool:
        if (pid := runner_of(self._town.home)) is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

        def thaw() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        # In a thread: a process that waits for the frozen one's lock may block this one.
        threading.Timer(1 + 2 * self._chance.random(), thaw).start()
        return True

    def _unmount_the_root(self) -> bool:
        away = self._town.root.with_name("away")
        if away.exists() or not self._town.root.exists():
            return False
        self._town.root.rename(away)
        try:
            self._town.root.mkdir()
        except OSError:  # another fault has taken the inodes
            away.rename(self._town.root)
            return False
        over_ns = time.time_ns() + int(_UNDER_WAY_S * 1e9)

        def mount() -> None:
            files = [path for path in self._town.root.rglob("*") if path.is_file()]
            # Work in progress at that moment may be written or not; the rows show it later.
            if left := [path for path in files if path.stat().st_mtime_ns > over_ns]:
                self._town.ledger.faults.append(f"written into a root that is not mounted: {left[:5]}")
            shutil.rmtree(self._town.root)
            away.rename(self._town.root)

        self._later(1 + 3 * self._chance.random(), mount)
        return True

    def _take_the_room(self) -> bool:
        return self._limit(room=True)

    def _take_the_inodes(self) -> bool:
        return self._limit(inodes=True)

    def _limit(self, **what: bool) -> bool:
        disk = self._town.disks[self._chance.choice(sorted(self._town.disks))]
        if not disk.is_mounted:
            return False
        disk.limit(**what)
        self._later(1 + 2 * self._chance.random(), disk.limit)
        return True

    def _shift_the_clock(self) -> None:
        self._town.clock.write_text(str(self._chance.choice((-_DAY_S, -_HOUR_S, _HOUR_S, _DAY_S))))
        self._later(1 + 3 * self._chance.random(), lambda: self._town.clock.write_text("0"))

    def _take_the_descriptors(self) -> bool:
        return self._starve(resource.RLIMIT_NOFILE, _DESCRIPTORS)

    def _starve(self, what: int, limit: int) -> bool:
        pid = runner_of(self._town.home)
        # A process that is already starved would get its little memory back.
        if pid is None or (pid, what) in self._starved or not hasattr(resource, "prlimit"):
            return False
        try:
            before = resource.prlimit(pid, what)
            resource.prlimit(pid, what, (limit, before[1]))
        except OSError:
            return False

        self._starved.add((pid, what))

        def feed() -> None:
            self._starved.discard((pid, what))
            with contextlib.suppress(OSError):
                resource.prlimit(pid, what, before)

        self._later(1 + 2 * self._chance.random(), feed)
        return True
