"""The storm: every fault of the fault model, at random, while a town is working.

The seed decides which faults come and when, so a storm can be repeated as closely as processes allow. Faults
overlap. A fault that takes a home or a root back in time waits until everything acknowledged is filed, and
spares the only remaining copy: no design can keep data that every disk has forgotten.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import apsw
from seam.chance import chance_from
from seam.emissions import emission
from seam.hostile import CLIENTS, HOSTILE, opens_as_another_user
from seam.oracle import compare, read_compacted
from seam.town import Town, runner_of

from waybill.transport import Journal, JournalError
from waybill.transport.journal.nodes import nodes_of

_ENDS_WITHIN_S: Final = 60.0
_SAVED_WITHIN_S: Final = 15.0
_SERVED_WITHIN_S: Final = 20.0
_NOTICED_WITHIN_S: Final = 1.5
_CLONE_LIVES_S: Final = 3.0
_UNDER_WAY_S: Final = 2.0
_SAVED: Final = "journal.saved-*.db"
_HALF: Final = 0.5
_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600
_DESCRIPTORS: Final = 24
_MEMORY_BYTES: Final = 2**24


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
        self._older: dict[Path, bytes] = {}
        self._spared: set[Path] = set()
        self._starved: set[tuple[int, int]] = set()
        self._was_adopted = False
        """Whether another root has been adopted since the snapshot."""
        self._copy, self._snapshot = town.folder / "copy", town.folder / "snapshot"

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
        """Stop the faults, repair damage as an operator would, and compare the layout with the ledger."""
        self._town.pause()
        self._town.kill_all()
        self._town.end_senders()
        self._town.flush()
        for _ in range(3):  # the next check may find what a repair files
            self._town.waybill("repair", "--json", may_fail=True)
            self._town.flush()
        found = self._town.findings()
        self._town.note(f"findings: {found}")
        accepting = [word for one in found for word in ("--accept", one["id"])]
        if accepting:
            self._town.waybill("verify", *accepting, "--why", "the storm did it", may_fail=True)
        left = self._town.findings()
        assert not left, f"findings that are left: {left[:5]}"
        assert not self._town.ledger.faults, "\n".join(self._town.ledger.faults[:10])
        rows = [row for row in read_compacted(self._town.root) if not row.did.startswith(HOSTILE)]
        lost, invented = compare(rows, self._town.ledger, self._town.ledger.acknowledged)
        unnamed = [record for record in lost if record.did not in self._town.named]
        assert not unnamed, f"{len(unnamed)} acknowledged and lost, and no command names them: {unnamed[:3]}"
        assert not invented, f"{len(invented)} that nobody emitted, or twice: {invented[:3]}"

    @contextlib.contextmanager
    def _calmly(self, *, flushed: bool = True) -> Iterator[None]:
        """Once all that was acknowledged is filed, kill everything; start again at the end."""
        self._end_faults(float("inf"))
        self._town.pause()
        try:
            if flushed:
                # The runner that does this lives until it is killed, so its WAL is left.
                self._town.keep_collector()
                self._town.flush()
            self._town.kill_all()
            yield
        finally:
            self._town.resume()

    def _now_only_in_the_root(self) -> None:
        """The journal lacks entries that the root has: their rows must be neither retracted nor damaged."""
        shutil.rmtree(self._copy, ignore_errors=True)
        self._spared.update((self._town.root / "events").rglob("*.parquet"))

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
            (self._take_the_memory, 1),
            (self._damage_a_file, 1),
            (self._be_a_hostile_client, 3),
            (self._be_a_hostile_user, 1),
            (self._flush_now, 1),
            (self._roll_the_home_back, 0.4),
            (self._roll_the_root_back, 0.4),
            (self._lose_the_wal, 0.4),
            (self._clone_the_home, 0.4),
            (self._delete_the_journal, 0.3),
            (self._replace_the_journal, 0.3),
            (self._damage_an_entry, 0.3),
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
        self._town.kill_runner_of(self._town.home)

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

    def _take_the_memory(self) -> bool:
        pid = runner_of(self._town.home)
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        except (OSError, ValueError):
            return False
        return self._starve(resource.RLIMIT_AS, pages * resource.getpagesize() + _MEMORY_BYTES)

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

    def _damage_a_file(self) -> bool:
        folders = ("provenance/compacted", "provenance/raw", "events")
        paths = sorted(path for one in folders for path in (self._town.root / one).rglob("*.parquet"))
        paths = [path for path in paths if path not in self._spared]
        if not paths:
            return False
        path = self._chance.choice(paths)
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes()
            is_raw = "raw" in path.parts
            how = self._chance.choice(("flip", "cut", "delete", "older")[: 3 if is_raw else 4])
            older = self._older.get(path)
            if not is_raw:
                self._older[path] = data
            if how == "flip" and data:
                at = self._chance.randrange(len(data))
                path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
            elif how == "cut":
                path.write_bytes(data[: len(data) // 2])
            elif how == "delete":
                path.unlink()
            elif older is not None and older != data:
                path.write_bytes(older)
            self._town.note(f"{how} {path}")
        return True

    def _be_a_hostile_client(self) -> None:
        threading.Thread(target=self._chance.choice(CLIENTS), args=(self._town.port,), daemon=True).start()

    def _be_a_hostile_user(self) -> bool:
        if os.geteuid() != 0:
            return False
        if opens_as_another_user(self._town.home):
            self._town.ledger.faults.append("another user can open what is in the home")
        return True

    def _roll_the_home_back(self) -> None:
        """Take a snapshot; the next time, reset the home to it, in the same files or in new ones."""
        home = self._town.home
        with self._calmly():
            if not self._snapshot.exists():
                shutil.copytree(home, self._snapshot)
                self._was_adopted = False
                return
            in_place = self._chance.random() < _HALF
            for path in home.glob("journal.db*"):
                if not (in_place and path.name == "journal.db"):
                    path.unlink()
            for path in self._snapshot.glob("journal.db*"):
                (home / path.name).write_bytes(path.read_bytes())
            shutil.rmtree(self._snapshot)
            self._now_only_in_the_root()
            if self._was_adopted:
                # The home does not remember that this root replaced the one it knew.
                self._adopt()

    def _roll_the_root_back(self) -> None:
        """Take a copy; the next time, replace the root by it."""
        with self._calmly():
            if not self._copy.exists():
                if self._town.root.exists():
                    shutil.copytree(self._town.root, self._copy)
                return
            shutil.rmtree(self._town.root)
            shutil.move(self._copy, self._town.root)  # which may be on a disk of its own
            self._older.clear()
            self._adopt()
            self._was_adopted = True

    def _adopt(self) -> None:
        self._town.waybill("flush", "--timeout", "10", may_fail=True)
        self._town.waybill("root", "adopt")

    def _lose_the_wal(self) -> None:
        with self._calmly():
            for path in self._town.home.glob("journal.db-*"):
                path.unlink()
            try:
                Journal(self._town.home).close()
            except JournalError:  # it was lost within a checkpoint: follow the error's advice
                (self._town.home / "journal.db").rename(self._town.home / "torn.db")
            self._now_only_in_the_root()

    def _clone_the_home(self) -> None:
        """Let a copy of the home work at the same root; its journal does not outlive it."""
        clone = self._town.home.with_name("clone")
        with self._calmly():
            shutil.copytree(self._town.home, clone)
        emitter = self._town.begin_emitter(clone)
        time.sleep(_CLONE_LIVES_S)
        self._town.end_emitter(emitter)
        self._end_faults(float("inf"))
        self._town.kill_runner_of(clone)
        self._town.flush(clone)
        self._town.kill_runner_of(clone)
        shutil.rmtree(clone)
        self._now_only_in_the_root()

    def _delete_the_journal(self) -> bool:
        """Delete it while it is served: a process that has it open saves it, and all stop until a restart."""
        home = self._town.home
        nodes = _nodes_of(home)
        # A journal that is put back continues under a new node.
        return self._lose_the_journal(
            self._delete, lambda: _is_saved(home) or _nodes_of(home)[: len(nodes)] == nodes
        )

    def _replace_the_journal(self) -> bool:
        """The same with another journal in its place, which is then moved away as the error advises."""

        def replace() -> None:
            other = self._town.folder / "other"
            Journal(other).close()
            self._delete()
            shutil.move(other / "journal.db", self._town.home / "journal.db")
            shutil.rmtree(other)

        return self._lose_the_journal(replace, lambda: _is_saved(self._town.home), self._delete)

    def _lose_the_journal(
        self, lose: Callable[[], object], is_safe: Callable[[], bool], mend: Callable[[], object] = bool
    ) -> bool:
        self._end_faults(float("inf"))
        if not self._town.is_served(within_s=_SERVED_WITHIN_S):
            return False  # Nobody would have it open.
        lose()
        deadline_s = time.monotonic() + _SAVED_WITHIN_S
        while not is_safe() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        time.sleep(_NOTICED_WITHIN_S)
        if not is_safe():
            self._town.ledger.faults.append("nobody saved a journal that was lost while it was served")
        with self._calmly(flushed=False):
            mend()  # the next to open the home puts back the saved journal
        return True

    def _delete(self) -> None:
        for path in self._town.home.glob("journal.db*"):
            path.unlink()

    def _damage_an_entry(self) -> None:
        """Damage a new entry between two others: the others are filed, and it is named as poison."""
        numbers = self._town.own_numbers()
        with self._calmly():
            journal = Journal(self._town.home)
            seqs = journal.append_many(item for number in numbers for item in emission(number).items)
            journal.close()
            connection = apsw.Connection(str(self._town.home / "journal.db"))
            connection.execute("UPDATE entries SET body = zeroblob(length(body)) WHERE seq = ?", (seqs[1],))
            connection.close()
            self._town.damaged[seqs[1]] = emission(numbers[1]).record.did
            self._town.ledger.offered += numbers
            self._town.ledger.acknowledged.update(numbers)


def _nodes_of(home: Path) -> list[str]:
    """The nodes that the journal in a home has had; none where there is none."""
    try:
        uri = f"{(home / 'journal.db').as_uri()}?mode=ro"
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        with contextlib.closing(connection):
            return [node.name for node in nodes_of(connection)]
    except apsw.Error:
        return []


def _is_saved(home: Path) -> bool:
    """Whether a lost journal is saved in its folder."""
    return any(home.glob(_SAVED))
