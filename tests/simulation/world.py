"""One home, all of it real, whose runner is stepped instead of run in threads, on a clock that is told.

Three things are put in the place of what is outside: the time, whether the process of an emitter lives, and
the backend, which answers by contract in this process. The runner, its projections, the journal, the files
and the answers are the product's own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from importlib.metadata import entry_points
from pathlib import Path
from random import Random
from typing import Any, Final

import apsw
import pytest
from crashes import Faults
from model import GONE, SEVERITY, START_MS, TYPES, Model, Run, comparable
from operations import Operations

from waybill.collector.endpoints import Readings
from waybill.exporter import Query, check
from waybill.exporter.archive import archived_files, read_entries
from waybill.lineage import Lineage, find
from waybill.lineage.index import INDEX_NAME
from waybill.marquez import Delivery, dead_letters
from waybill.marquez.backend import Answer, Correction, Verdict
from waybill.transport import Entry, Journal, JournalError, JournalFullError, Kind, Settings
from waybill.transport.config import MARQUEZ, agree
from waybill.transport.programs import Program, this_program
from waybill.transport.runner import Projection, Runner, note_program

ENTRY_POINTS: Final = functools.cache(entry_points)
ROUNDS_MAX: Final = 3_000
IDLE_S_MIN: Final = 0.005
LACKS: Final = "lacks what the journal has deleted since"
"""A turn that had nothing to do and waits less than this comes too early, as the runner counts it."""
SHOWN_MAX: Final = 3
"""So many differences are told."""
LONG_S: Final = 60.0
"""Nothing that the settling of a home needs waits longer than this at a time."""


class Clock:
    """The clock on the wall, which may be set back, and the monotonic one, which may not."""

    def __init__(self) -> None:
        self.wall_s = START_MS / 1_000
        self.monotonic_s = 1_000.0

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.wall_s += max(seconds, 0.0)
        self.monotonic_s += max(seconds, 0.0)

    @property
    def now_ms(self) -> int:
        """The clock on the wall, epoch milliseconds."""
        return int(self.wall_s * 1_000)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have all code of this process ask this clock; only this thread's waits move it.

        A thread that an earlier test has left behind would wind it on in the middle of an action.
        """
        own, real_sleep = threading.get_ident(), time.sleep

        def sleep(seconds: float) -> None:
            (self.wait if threading.get_ident() == own else real_sleep)(seconds)

        patch.setattr(time, "time", lambda: self.wall_s)
        patch.setattr(time, "time_ns", lambda: self.now_ms * 1_000_000)
        patch.setattr(time, "monotonic", lambda: self.monotonic_s)
        patch.setattr(time, "sleep", sleep)


def change_default(patch: pytest.MonkeyPatch, kind: type, name: str, value: object) -> None:
    """Have objects of a class made with another value of an argument that their caller leaves out."""
    patch.setitem(vars(kind)["__init__"].__kwdefaults__, name, value)


class Backend:
    """A backend that answers as Marquez does, in this process.

    Attributes:
        mood: ``well``; ``away``: nothing answers; ``silent``: it stores, and its answer is lost;
            ``unwell``: it fails without storing.
        stored: the events that it has stored, by run, type and time.
        last: the last event that it has stored of each run, by its id.
        refused: the runs of which it has refused an event for good.
    """

    shown_url = "the backend"
    to_correct = Correction("its endpoint"), Correction("its key")

    def __init__(self) -> None:
        self.mood = "well"
        self.stored: Counter[tuple[str, str, str]] = Counter()
        self.last: dict[str, tuple[str, str, str]] = {}
        self.refused: set[str] = set()
        self.unseen: Counter[tuple[str, str, str]] = Counter()
        """How often the answer to an event was lost."""
        self.latest: Counter[tuple[str, str, str]] = Counter()
        """What was stored in the last step: if the runner dies now, it has not noted all these answers."""
        self.unsynced: Counter[tuple[str, str, str]] = Counter()
        """What was stored since the journal's log was fsynced: if the power fails now, nobody knows of it."""
        self.never_told: set[tuple[str, str]] = set()
        """The events, by run and type, that the power may have taken from the journal."""

    def deliver(self, body: bytes) -> Answer:
        if self.mood == "away":
            return Answer(verdict=Verdict.AWAY, words="nothing answers")
        if self.mood == "unwell":
            return Answer(verdict=Verdict.UNWELL, status=500)
        event = json.loads(body)
        if "run" in event and (number := number_of(event["run"]["runId"])) is not None:
            run = Run(number)
            if run.is_refused:
                self.refused.add(run.id)
                return Answer(verdict=Verdict.REFUSED, status=422, words="no")
            kind = event["eventType"]
            told = (run.id, kind, event["eventTime"])
            self.stored[told] += 1
            self.latest[told] += 1
            self.last[run.id] = told
            if self.mood == "silent":
                self.unseen[told] += 1
        if self.mood == "silent":
            return Answer(verdict=Verdict.AWAY, words="the answer was lost")
        return Answer(verdict=Verdict.DELIVERED, status=201)

    def renewed(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


class Inline:
    """Does at once, in the caller's thread, what would be handed to other threads."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, work: Callable[..., Any], *args: object) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args))
        except BaseException as error:  # noqa: BLE001 - the future carries it
            done.set_exception(error)
        return done

    def shutdown(self) -> None: ...


def number_of(run_id: str) -> int | None:
    """The number of a run; None for one that is not of the model's, such as a transform's."""
    return int(run_id[24:]) if run_id.startswith("01940000-0000-7000-8000-") else None


class World:
    """One home, its runner and its model."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, chance: Random, *, journal_retain_days: float
    ) -> None:
        self.clock = Clock()
        self.clock.install(patch)
        self.backend = Backend()
        self.faults = Faults(folder, chance, patch, self.backend.unsynced.clear)
        self.model = Model()
        self.folder = folder
        patch.setattr("waybill.marquez.targets._target", lambda *_: self.backend)
        patch.setattr("waybill.marquez.delivery.delivery.ThreadPoolExecutor", Inline)
        jitter = Random(0)  # noqa: S311 - a seed gives the same sequence again
        change_default(patch, Delivery, "rng", jitter)
        patch.setattr("waybill.transport.programs._is_alive", lambda pid, _: pid not in self._dead)
        for module in ("waybill.transport.runner.projection", "waybill.lineage.analyzers.analyzer"):
            patch.setattr(f"{module}.entry_points", ENTRY_POINTS)  # what is installed does not change
        patch.setattr("waybill.transport.runner.runner.isolate", refuse_to_isolate)
        patch.setattr("waybill.exporter.exporting.exporting.WORKERS", 1)  # the calls come in the same order
        patch.setattr("secrets.token_hex", lambda count: jitter.randbytes(count).hex())
        self._dead: set[int] = set()
        given = {
            "home": folder / "home",
            "root": folder / "root",
            "system_name": "tests",
            "provenance_enabled": True,
            "archive_enabled": True,
            "provenance_annotations_allowed": ["last", "part0", "part1", "part2"],
            "marquez_url": "http://backend.invalid:5000",
            "journal_retain_days": journal_retain_days,
            "runner": "none",
        }
        self._given = Settings.load(given, origin="simulation", env={}, cwd=folder)
        self._seen = self._durable = 0
        """The last entry of the journal that the model knows of, and the last that must survive the power."""
        self._told: dict[int, tuple[Entry, Callable[[], None]]] = {}
        """The entries that the model knows of, each with what tells the model of it."""
        self._meanings: dict[bytes, Callable[[str | None], None]] = {}
        """What the model is told of a program's entry, by its body."""
        """Whether the last step of the delivery could note the answers that it got."""
        self._programs = 0
        self._asked = 0
        self.operations = Operations(folder, self._given, self.model, self.faults, chance)
        self.open()
        self._begin_readings()
        self.begin_program()

    # -- the life of the runner and of programs --------------------------------------------------------------

    def open(self) -> None:
        """Open the home, and what runs its projections."""
        self.journal = Journal(self._given.home)
        self.emitters = Journal(self._given.home)
        self.settings = agree(self.journal, self._given, as_runner=True)
        self.runner = Runner(self.journal, self.settings)
        self.runner.open()
        names = [one.name for one in self.runner.projections]
        self._due_s, self._short = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)

    def _begin_readings(self) -> None:
        """Begin another process that answers as a collector does, which keeps what it has read."""
        self._reader = Journal(self._given.home, to_read=True)
        self._readings = Readings(self._reader, self.settings)

    def end_readings(self) -> None:
        """End that process."""
        self._readings.close()
        self._reader.close()

    def reopen(self) -> None:
        """Open the home; if the disk fails, once it works again."""
        try:
            self.open()
        except (JournalError, OSError):
            if not self.faults.are_there:
                raise
            self.faults.make_room()
            self.faults.end_failure()
            self.close()
            self.open()

    @property
    def projections(self) -> dict[str, Projection]:
        """The projections that are open."""
        return {one.name: one for one in self.runner.projections}

    def close(self) -> None:
        """Leave everything as the death of the process would: nothing is completed."""
        self.backend.unseen.update(self.backend.latest)
        for projection in self.projections.values():
            projection.close()
        self.journal.close()
        self.emitters.close()

    def finish(self) -> None:
        """End the runner in good order."""
        self.runner.close()
        self.journal.close()
        self.emitters.close()

    def die(self, *, loses_power: bool) -> None:
        """End the process that is dying, or all of them by a loss of power, and begin others."""
        if loses_power:
            self.backend.unseen.update(self.backend.unsynced)
            self.end_readings()
        self.close()
        self.faults.revive(loses_power=loses_power)
        self.reopen()
        if loses_power:
            self._begin_readings()
            self.operations.lose_power()
            self.faults.make_room()  # what filled it is gone, too
            self._forget_lost()
            self.end_program()
        self.look()

    def _forget_lost(self) -> None:
        """Have the model forget the last entries, which the power has taken."""
        last_seq = self.journal.last_seq()
        assert last_seq >= self._durable, f"entries after {last_seq} are lost, {self._durable} was durable"
        place = self._place_of_index()
        assert place <= last_seq, f"the index has entries up to {place}, the journal up to {last_seq}"
        for seq in [one for one in self._told if one > last_seq]:
            body = self._told.pop(seq)[0].body
            if body.startswith(b"{") and "run" in (event := json.loads(body)):
                self.backend.never_told.add((event["run"]["runId"], event["eventType"]))
        self._seen = min(self._seen, last_seq)
        self.model.lives.clear()
        self.model.told.clear()
        for _, tell in self._told.values():
            tell()

    def _place_of_index(self) -> int:
        """The last entry that the index has; 0 if there is none, or a full disk does not let it be read."""
        address, flags = str(self._given.home / INDEX_NAME), apsw.SQLITE_OPEN_READWRITE
        with (
            contextlib.suppress(apsw.CantOpenError, apsw.FullError, apsw.IOError),
            contextlib.closing(apsw.Connection(address, flags)) as index,
        ):
            if index.pragma("user_version"):
                return index.execute("SELECT max(seq) FROM place").get or 0
        return 0

    def begin_program(self) -> None:
        """Begin another program that emits; the one before stays alive."""
        here = this_program()
        assert here is not None, "programs are identified on Linux only"
        self._programs += 1
        self.program = str(here._replace(pid=10_000_000 + self._programs))
        self._is_noted = False
        with contextlib.suppress(JournalError):
            self._note_program()

    def _note_program(self) -> None:
        """Note the program as an emitter does, at the latest before its first entry."""
        if not self._is_noted:
            note_program(self.emitters, Program.parse(self.program))
            self._is_noted = True

    def end_program(self) -> None:
        """Kill the program that emits, and begin another."""
        self._dead.add(Program.parse(self.program).pid)
        self.model.gone.add(self.program)
        self.begin_program()

    # -- what is done ----------------------------------------------------------------------------------------

    def append(
        self, told: Mapping[bytes, Callable[[str | None], None]], *, durable: bool, program: str | None
    ) -> None:
        """Keep entries as an emitter does, given what each tells the model."""
        self._meanings |= told
        self.look()
        known = self._known()
        items = [
            (Kind.OPENLINEAGE, body, "tests") if b'"runId"' in body else (Kind.PROVENANCE, body, "")
            for body in told
        ]
        try:
            if program is not None:
                self._note_program()
            self.emitters.append_many(items, program=program, durable=durable)
        except JournalError as error:
            self._refused(error, known)
            return
        self.look()
        assert self._known() >= told.keys(), "entries were accepted, and are not in the journal"
        if durable:
            self._durable = self._seen

    def _refused(self, error: JournalError, known: set[bytes]) -> None:
        if not self.faults.is_dead:
            assert self.faults.has_failed or isinstance(error, JournalFullError) is self.faults.is_full, error
            self.look()
            assert self._known() == known, "entries were refused and kept"

    def _known(self) -> set[bytes]:
        return {entry.body for entry, _ in self._told.values()}

    def flush(self) -> None:
        """Ask for a flush."""
        try:
            self._durable = self.emitters.mark(b"flush")
        except JournalError:
            assert self.faults.are_there

    def step(self, name: str) -> bool:
        """Step one projection if the runner would; returns whether it did something.

        A projection whose step found nothing rests until its time has come, or an entry.
        """
        answered = self.backend.latest.copy()
        step = self.runner.step(name)
        if name == MARQUEZ and not self.faults.are_there:
            # The last answers of a step are noted by the next one.
            self.backend.unsynced.update(answered)
            self.backend.latest -= answered
        if self.faults.is_dead:
            return False
        self.look()
        was_due = self.clock.monotonic_s >= self._due_s[name]
        self._due_s[name] = self.clock.monotonic_s + (LONG_S if step.retry_s is None else step.retry_s)
        is_short = was_due and not step.applied and step.retry_s is not None and step.retry_s < IDLE_S_MIN
        self._short[name] = self._short[name] + 1 if is_short else 0
        assert self._short[name] < 2, f"{name} has nothing to do and asks again at once: {step}"
        if step.problem is not None and not self.faults.are_there:
            assert name == MARQUEZ or self.operations.is_away, f"{name} has a problem: {step.problem}"
            assert (
                self.operations.is_away
                or self.backend.mood != "well"
                or not step.applied
                or step.retry_s is None
            ), step
        return bool(step.applied)

    def rested(self) -> None:
        """Note that time has passed since the projections were stepped."""
        self._short = dict.fromkeys(self.projections, 0)

    def keep_house(self) -> None:
        """Checkpoint, prune and end runs, as is due."""
        self.runner.keep_house(self.clock.monotonic_s)
        if not self.faults.is_dead:
            self.look()

    def look(self) -> None:
        """Tell the model of the entries that are new in the journal."""
        for entry in self.journal.read(self._seen, limit=100_000):
            self._seen = entry.seq
            if entry.kind is Kind.MARK:
                continue
            meaning = self._meanings.get(entry.body)
            if meaning is not None:
                tell = functools.partial(meaning, entry.program)
            else:
                event = json.loads(entry.body)
                number = number_of(event["run"]["runId"])
                inferred = event["run"]["facets"].get("waybill_inferred")
                assert number is not None, f"nobody sent {event}"
                assert inferred is not None, f"nobody sent {event}"
                assert inferred["reason"] == GONE
                assert event["eventType"] == "ABORT"
                tell = functools.partial(self.model.infer, number, self.clock.now_ms)
            self._told[entry.seq] = entry, tell
            tell()

    def settle(self) -> None:
        """Let everything happen that is going to, a flush included, with a backend that is well."""
        self.backend.mood = "well"
        self.faults.make_room()
        self.operations.bring_back()
        self._rest()
        self.flush()
        self._rest()

    def _rest(self) -> None:
        """Step until nothing is left to do, and let time pass meanwhile."""
        quiet_s, seen = 0.0, 0
        for _ in range(ROUNDS_MAX):
            self.keep_house()
            # What rests is stepped as by the runner: when its time has come, or after others did something.
            is_woken, seen = not quiet_s or self._seen != seen, self._seen
            names = [
                name for name, due_s in self._due_s.items() if is_woken or due_s <= self.clock.monotonic_s
            ]
            if sum(self.step(name) for name in names):
                quiet_s = 0.0
                continue
            pending = sum(projection.pending() for projection in self.projections.values())
            if quiet_s > LONG_S and not pending:
                return
            wait_s = min(self._due_s.values()) - self.clock.monotonic_s
            wait_s = min(max(wait_s, 0.0) + 0.001, 5.0)
            quiet_s += wait_s
            self.clock.wait(wait_s)
            self.rested()
        left = {name: (one.pending(), one.step()) for name, one in self.projections.items()}
        raise AssertionError(f"still not done: {left}")

    # -- what must hold --------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask the process that keeps what it has read."""
        answers = self._readings.begin().answers
        self._compare(Lineage(lambda: contextlib.nullcontext(answers)), answers.notes)

    def _compare(self, lineage: Lineage, notes: Collection[str] = ()) -> None:
        """Ask what people ask, and compare the answers with the model, whatever is filed so far.

        An answer whose notes say that the index lacks entries, which the journal deleted before the index was
        made again, has the records alone.
        """
        compare("records", Counter(map(comparable, lineage.find())), self.model.records())
        open_files = Counter(one.did for one in lineage.open_files())
        is_whole = not any(LACKS in note for note in notes)
        if is_whole:
            compare("open", open_files, Counter(self.model.open_runs()))
        if self.model.lives:
            life = list(self.model.lives.values())[self._asked % len(self.model.lives)]
            self._asked += 1
            found = lineage.find(Query(did=life.run.id))
            compare("of a file", Counter(map(comparable, found)), Counter(map(comparable, life.records())))
        whole = lineage.graph()
        edges = {(shown(one), shown(other)) for one, other in whole.edges()}
        if is_whole:
            compare("edges", Counter(edges), Counter(self.model.edges()))

    def check(self) -> None:
        """Check a home that has settled: its files, its backend and its answers."""
        self.ask()
        self._compare(Lineage.open(self.settings.home))
        compare("files", Counter(map(comparable, find(self.settings.root))), self.model.records())
        findings = [one for checked in check(self.settings.root) for one in checked.findings]
        assert not findings, f"what verify finds: {findings}"
        left = [path for path in self.settings.root.glob("provenance/raw/**/*") if path.is_file()]
        assert not left, f"a flush left {left}"
        self._check_journal()
        self._check_backend()
        for life in self.model.lives.values():
            is_left = life.is_open and life.program in self.model.gone
            assert not is_left, f"the program of {life} is gone, and nobody has ended it"

    def _check_journal(self) -> None:
        entries = self.journal.read(0, limit=100_000)
        bodies = Counter(entry.body for entry in entries if entry.kind is not Kind.MARK)
        assert set(bodies.values()) <= {1}, f"an entry is in the journal twice: {bodies.most_common(1)}"
        times_ms = [entry.received_ms for entry in entries]
        assert times_ms == sorted(times_ms), "an entry was received before the one before it"
        archived = [entry for _, path in archived_files(self.settings.root) for entry in read_all(path)]
        seqs = Counter(entry.seq for entry in archived)
        compare("archive", seqs, Counter(range(1, self.journal.last_seq() + 1)))

    def _check_backend(self) -> None:
        letters, refused = {one.key for one in dead_letters(self.journal)}, self.backend.refused
        lost = {run for run, _ in self.backend.never_told}
        assert letters <= {f"run {run}" for run in refused}, f"only {refused} were refused: {letters}"
        assert {f"run {run}" for run in refused - lost} <= letters, f"{refused} were refused: {letters}"
        is_whole = self.journal.read(0, limit=1)[0].seq == 1
        events = [json.loads(entry.body) for entry, _ in self._told.values() if b'"runId"' in entry.body]
        entries = Counter((one["run"]["runId"], one["eventType"], one["eventTime"]) for one in events)
        ends = Counter[str]()
        for (run_id, kind, _), count in self.backend.stored.items():
            ends[run_id] += count if kind in SEVERITY else 0
        for told, count in self.backend.stored.items():
            if told[1] not in SEVERITY:
                # Before an end, Waybill may repeat on purpose what says when the run began.
                # An event that comes again after the journal has let go of it is another entry.
                most = max(1, entries[told]) + self.backend.unseen[told] + ends[told[0]]
                assert count <= most, f"the backend got {told} {count} times, and at most {most} were due"
        has = {(run, kind) for run, kind, _ in self.backend.stored}
        for life in self.model.lives.values():
            run = life.run
            if run.is_refused:
                continue
            kinds = {kind for one, kind in has if one == run.id}
            wanted = {TYPES[letter] for letter in life.letters} | {"ABORT" for _ in life.inferred_ms}
            lost = {kind for one, kind in self.backend.never_told if one == run.id}
            assert wanted <= kinds <= wanted | lost, f"the backend has {kinds} of {life}"
            end, last = life.end, self.backend.last[run.id]
            # Delivery forgets runs with their entries.
            if not is_whole or lost or end is None:
                continue
            if not life.is_open:  # A later event that is no end would have it running again.
                assert last[1] == TYPES[end.letter], f"the backend shows {last} for {life}"
            elif last[1] in SEVERITY:
                # Nothing hides a late end of an attempt before, but it is not sent again.
                count, most = self.backend.stored[last], 1 + self.backend.unseen[last]
                assert count <= most, f"the backend got {last} {count} times, and goes on: {life}"


def refuse_to_isolate(_journal: Journal, _settings: Settings, name: str, **_: object) -> bool:
    """No entry of a simulation is poison, so nothing is to be isolated."""
    raise AssertionError(f"{name} failed, and is isolated")


def read_all(path: Path) -> list[Entry]:
    """The entries of a file of the archive."""
    return [entry for batch in read_entries(path) for entry in batch]


def shown(node: Any) -> str:  # noqa: ANN401 - networkx has no types
    """A node of the graph as the model names it."""
    return f"{node.namespace}/{node.name}"


def compare(what: str, real: Counter[Any], wanted: Counter[Any]) -> None:
    """Check that nothing is lost, doubled or invented."""
    lost, more = (sorted(map(str, one.elements()))[:SHOWN_MAX] for one in (wanted - real, real - wanted))
    assert not lost, f"{what}: lost {lost}; has instead {more}"
    assert not more, f"{what}: invented or doubled {more}"


@contextlib.contextmanager
def opened(chance: Random, *, journal_retain_days: float) -> Iterator[World]:
    """A world in a folder of its own, in memory if possible; the time is the real one again afterwards."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder below it has a name of its own
    with (
        tempfile.TemporaryDirectory(
            prefix="waybill-simulation-", dir=memory if os.access(memory, os.W_OK) else None
        ) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        world = World(Path(folder), patch, chance, journal_retain_days=journal_retain_days)
        try:
            yield world
        finally:
            world.end_readings()
            world.close()
            world.faults.close()
