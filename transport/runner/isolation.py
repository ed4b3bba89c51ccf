"""Isolation: a projection that fails, or that runners have died at, continues in a separate process.

Whatever an entry does to that process, the runner and its other projections survive. The process does the
real work in bounded memory, up to an entry that the runner names: first all suspected entries, then an eighth
of the remaining ones after each failure. An entry that fails alone `TRIES` times is poison. It is taken back
if the projection cannot continue without it either, because then the entry is not at fault. If memory or
another resource ran out, which may be another program's fault, the next try comes later.

A projection loses nothing if it is killed at any moment, so this process may be killed too. It holds the
runner's lease, and ends when the runner does.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Self, cast

import msgspec

from .. import process
from ..clock import SYSTEM_CLOCK
from ..config import obey
from ..errors import JournalError, JournalTooLargeError
from ..journal import Entry, Journal, Kind
from .projection import Projection, open_projections
from .supervisor import LOG_NAME

if TYPE_CHECKING:
    from ..config import Settings

log = logging.getLogger("waybill.runner")

TRIES: Final = 3
"""How often an entry is tried alone before it is poison, and how many runners may die at one entry."""

MEMORY_BYTES_MAX: Final = 2 * 2**30
"""The memory that one try may use."""

TIME_S_MAX: Final = 300.0
"""How long one try may take."""

AHEAD_MAX: Final = 50_000
"""How many entries after the cursor are suspected of a failure, at most."""

PAUSES_S: Final = (1.0, 5.0)
"""The waits for a resource that ran out, after the first and after the second try of an entry alone."""

_OF_ENTRIES: Final = (ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError)
"""Errors that an entry can cause. Others may mean that memory ran out: then no thread can be started."""

_FACTOR: Final = 8
_POLL_S: Final = 0.1
_REASON_CHARS_MAX: Final = 1_000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a try ended; without any value, it succeeded.

    Attributes:
        fault: what failed, if an entry may be at fault.
        is_scarce: whether a resource such as memory may have run out.
        is_held_up: whether something that is no entry's fault stops the projection.
    """

    fault: str | None = None
    is_scarce: bool = False
    is_held_up: bool = False


_WELL: Final = Outcome()
_HELD_UP: Final = Outcome(is_held_up=True)


def is_held_up(error: Exception) -> bool:
    """Whether an error comes from the disk and not from an entry."""
    return isinstance(error, (OSError, JournalError)) and not isinstance(error, JournalTooLargeError)


def isolate(
    journal: Journal, settings: Settings, name: str, *, lease: int | None, stopping: threading.Event
) -> bool:
    """Run a projection in a separate process until it is past the entries that may have made it fail.

    The caller has closed the projection. Returns whether it made progress.

    Raises:
        JournalError: the journal cannot be read or written.
        OSError: the process cannot be started.
    """
    first = journal.cursor(name)
    with _Apart(journal, settings, name, lease=lease, stopping=stopping) as apart:
        _pass_suspects(journal, name, apart)
    return journal.cursor(name) > first


def _pass_suspects(journal: Journal, name: str, apart: _Apart) -> None:
    upto = min(journal.last_seq(), journal.cursor(name) + AHEAD_MAX)
    failed_upto = tries = 0
    while (cursor := journal.cursor(name)) < upto:
        entry = journal.feed(name, cursor, limit=1)[0]
        last = upto
        if failed_upto >= entry.seq:
            last = entry.seq + (failed_upto - entry.seq) // _FACTOR
        outcome = apart.work_up_to(last)
        if outcome.is_held_up:
            return
        if outcome == _WELL:
            tries = 0
        elif last > entry.seq or journal.cursor(name) > cursor:
            failed_upto, tries = last, 0
        elif (tries := tries + 1) == TRIES:
            if not _set_aside(journal, name, entry, str(outcome.fault), apart):
                return
            failed_upto = tries = 0
        elif outcome.is_scarce:
            apart.rest(PAUSES_S[tries - 1])


def _set_aside(journal: Journal, name: str, entry: Entry, reason: str, apart: _Apart) -> bool:
    """Make an entry poison; return False if the projection cannot continue without it either."""
    if entry.kind is Kind.MARK:
        return False
    before = journal.poison.all(name)
    journal.poison.set_aside(name, entry.seq, reason, tries=TRIES)
    if apart.work_up_to(entry.seq) == _WELL:
        log.error(
            "entry %d is set aside as poison for %s, which continues without it: %s", entry.seq, name, reason
        )
        return True
    journal.poison.take_back(before, name, entry.seq)
    return False


class _Apart:
    """The process that runs one projection; started for the first try, and again after it has died."""

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        name: str,
        *,
        lease: int | None,
        stopping: threading.Event,
    ) -> None:
        self._home = journal.home
        self._settings = settings
        self._name = name
        self._lease = lease
        self._stopping = stopping
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def work_up_to(self, seq: int) -> Outcome:
        """Run the projection until its cursor is at an entry."""
        child = self._process = self._process or self._start()
        with contextlib.suppress(BrokenPipeError):  # it has died, so there is no answer
            cast("BinaryIO", child.stdin).write(b"%d\n" % seq)
            cast("BinaryIO", child.stdin).flush()
        answer = self._answer_of(child)
        if answer is None:
            self._end()
            code = child.returncode
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            fault = f"it kills the process that applies it ({how})"
            answer = Outcome(fault=fault, is_scarce=True)
        return answer

    def rest(self, pause_s: float) -> None:
        """Wait for the resource that ran out; the next try gets a new process with the same limits."""
        self._end()
        self._stopping.wait(pause_s)

    def _answer_of(self, child: subprocess.Popen[bytes]) -> Outcome | None:
        """The process's answer to a try; None if it dies."""
        answers, answer = cast("BinaryIO", child.stdout).fileno(), b""
        poll = select.poll()
        poll.register(answers, select.POLLIN)
        deadline_s = SYSTEM_CLOCK.monotonic_s() + TIME_S_MAX
        while not answer.endswith(b"\n"):
            if self._stopping.is_set():
                return _HELD_UP
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                self._end()
                return Outcome(fault=f"applying it takes longer than {TIME_S_MAX:g} s")
            if poll.poll(_POLL_S * 1_000):
                part = os.read(answers, 2**16)
                if not part:
                    return None
                answer += part
        return msgspec.json.decode(answer, type=Outcome)

    def _start(self) -> subprocess.Popen[bytes]:
        script = "from waybill.transport.runner.isolation import main; main()"
        with (self._home / LOG_NAME).open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-c", script, str(self._home), self._name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=self._home,
                env=dict(os.environ) | self._settings.environment,
                start_new_session=True,
                pass_fds=() if self._lease is None else (self._lease,),
            )

    def _end(self) -> None:
        child, self._process = self._process, None
        if child is not None:
            with contextlib.suppress(BrokenPipeError), child:
                child.kill()


# -- in the process ------------------------------------------------------------------------------------------


class _BoundedJournal(Journal):
    """A journal that appears to end at an entry."""

    upto = 0

    def read(
        self, after: int, *, limit: int = 1000, max_bytes: int = 64 * 2**20, body_max_bytes: int | None = None
    ) -> list[Entry]:
        limit = min(limit, self.upto - after)
        if limit <= 0:
            return []
        entries = super().read(after, limit=limit, max_bytes=max_bytes, body_max_bytes=body_max_bytes)
        return [entry for entry in entries if entry.seq <= self.upto]

    def follow(self, after: int, *, limit: int = 1000, max_bytes: int = 64 * 2**20) -> list[Entry]:
        return self.read(after, limit=limit, max_bytes=max_bytes)  # what was read before may be beyond it


def main() -> None:
    """Be the process: run a projection up to each entry number that is read, and write the outcome."""
    home, name = Path(sys.argv[1]), sys.argv[2]
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"
    )
    process.prepare()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for anything that a projection prints
    wanted: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(wanted,), daemon=True).start()
    with contextlib.closing(_BoundedJournal(home)) as journal:
        projection = None
        while True:
            journal.upto = wanted.get()
            try:
                if projection is None:
                    (projection,), _ = open_projections(journal, obey(journal), name)
                    _bound_memory()
                outcome = _work(journal, projection)
            except Exception as error:
                log.exception("projection %s failed", name)
                outcome = _outcome_of(error)
                with contextlib.suppress(Exception):  # the next try uses a new one
                    if projection is not None:
                        projection.close()
                projection = None
            answers.write(msgspec.json.encode(outcome) + b"\n")
            answers.flush()


def _listen(wanted: queue.SimpleQueue[int]) -> None:
    """Read the wanted numbers; end when the runner has ended."""
    for line in sys.stdin:
        wanted.put(int(line))
    os._exit(0)


def _work(journal: _BoundedJournal, projection: Projection) -> Outcome:
    while (cursor := journal.cursor(projection.name)) < journal.upto:
        step = projection.step()
        if step.applied or journal.cursor(projection.name) > cursor:
            continue
        if step.problem is not None:
            return _HELD_UP
        # It waits for more entries, or for an answer.
        projection.finish()
        SYSTEM_CLOCK.sleep(_POLL_S)
    return _WELL


def _outcome_of(error: Exception) -> Outcome:
    if is_held_up(error):
        return _HELD_UP
    if isinstance(error, MemoryError):
        most = f"the {MEMORY_BYTES_MAX >> 30} GiB that one try may use"
        return Outcome(fault=f"applying it needs more memory than there is, or than {most}", is_scarce=True)
    fault = f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX]
    return Outcome(fault=fault, is_scarce=not isinstance(error, _OF_ENTRIES))


@functools.cache
def _bound_memory() -> None:
    """Limit this process to `MEMORY_BYTES_MAX` more than it uses now, if the system supports that."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        (used_kib,) = (int(line.split()[1]) for line in lines if line.startswith("VmData:"))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (used_kib * 1024 + MEMORY_BYTES_MAX, hard))
