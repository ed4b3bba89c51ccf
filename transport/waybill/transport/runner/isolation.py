"""Isolation: a projection that fails, or at which runners have died, goes on in a process of its own.

Whatever an entry does to that process, the runner and its other projections live on. The process does the
real work, in bounded memory, up to one entry after the other that the runner names: all that are suspected at
first, an eighth of what is left of them after each failure. An entry that fails alone `TRIES` times is
poison. It is taken back if the projection cannot go on without it either: then the fault is not the entry's.
Where memory or anything else ran out, which may be the fault of another program, the next try comes later.

A projection that is killed at any moment loses nothing, so this process may be killed, too. It has the
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
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Self, cast

import msgspec

from waybill.transport import process
from waybill.transport.config import obey
from waybill.transport.errors import JournalError, JournalTooLargeError
from waybill.transport.journal import Entry, Journal, Kind
from waybill.transport.runner.projection import Projection, open_projections
from waybill.transport.runner.supervisor import LOG_NAME

if TYPE_CHECKING:
    from waybill.transport.config import Settings

log = logging.getLogger("waybill.runner")

TRIES: Final = 3
"""How often an entry is tried alone before it is poison, and how many runners may die at one place."""

MEMORY_BYTES_MAX: Final = 2 * 2**30
"""How much memory one try may take."""

TIME_S_MAX: Final = 300.0
"""How long one try may take."""

AHEAD_MAX: Final = 50_000
"""Up to so many entries ahead of the cursor are suspected of a failure."""

_PAUSES_S: Final = (1.0, 5.0)
"""How long whatever ran out gets to be there again, after the first try alone and after the second."""

_OF_ENTRIES: Final = (ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError)
"""What an entry itself may cause; without memory, Python cannot start a thread either, nor load a module."""

_FACTOR: Final = 8
_POLL_S: Final = 0.1
_REASON_CHARS_MAX: Final = 1_000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a try ended; without a value, well.

    Attributes:
        fault: what failed, if it may be the fault of an entry.
        is_scarce: whether something may have run out, such as memory.
        is_held_up: whether something keeps the projection from going on that is the fault of none.
    """

    fault: str | None = None
    is_scarce: bool = False
    is_held_up: bool = False


_WELL: Final = Outcome()
_HELD_UP: Final = Outcome(is_held_up=True)


def is_held_up(error: Exception) -> bool:
    """Whether an error is the disk's, whatever the entry."""
    return isinstance(error, (OSError, JournalError)) and not isinstance(error, JournalTooLargeError)


def isolate(
    journal: Journal, settings: Settings, name: str, *, lease: int | None, stopping: threading.Event
) -> bool:
    """Work a projection in a process of its own until it is past what may have made it fail.

    The caller has closed it. Returns whether it got any further.

    Raises:
        JournalError: the journal cannot be read or written.
        OSError: no process can be started.
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
            apart.rest(_PAUSES_S[tries - 1])


def _set_aside(journal: Journal, name: str, entry: Entry, reason: str, apart: _Apart) -> bool:
    """Make an entry poison; False if the projection cannot go on without it either."""
    if entry.kind is Kind.MARK:
        return False
    before = journal.poison.all(name)
    journal.poison.set_aside(name, entry.seq, reason, tries=TRIES)
    if apart.work_up_to(entry.seq) == _WELL:
        log.error("entry %d is poison for %s, which goes on without it: %s", entry.seq, name, reason)
        return True
    journal.poison.take_back(before, name, entry.seq)
    return False


class _Apart:
    """The process that works one projection; it is started for the first try, and again where it has died."""

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
        """Have the projection work until its cursor is at an entry."""
        child = self._process = self._process or self._start()
        with contextlib.suppress(BrokenPipeError):  # it has died: then there is no answer
            cast("BinaryIO", child.stdin).write(b"%d\n" % seq)
            cast("BinaryIO", child.stdin).flush()
        answer = self._answer_of(child)
        if answer is None:
            self._end()
            answer = Outcome(fault=_death_of(child), is_scarce=True)
        return answer

    def rest(self, pause_s: float) -> None:
        """Wait for what ran out, and begin again with a process that has the limits of this one."""
        self._end()
        self._stopping.wait(pause_s)

    def _answer_of(self, child: subprocess.Popen[bytes]) -> Outcome | None:
        """What the process says of a try; None if it dies."""
        answers, answer = cast("BinaryIO", child.stdout).fileno(), b""
        poll = select.poll()
        poll.register(answers, select.POLLIN)
        deadline_s = time.monotonic() + TIME_S_MAX
        while not answer.endswith(b"\n"):
            if self._stopping.is_set():
                return _HELD_UP
            if time.monotonic() > deadline_s:
                self._end()
                return Outcome(fault=f"it takes longer than {TIME_S_MAX:g} s")
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


def _death_of(child: subprocess.Popen[bytes]) -> str:
    code = child.returncode
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"it ends the process that applies it ({how})"


# -- in the process ------------------------------------------------------------------------------------------


class _BoundedJournal(Journal):
    """A journal that seems to end at an entry."""

    upto = 0

    def read(self, after: int, *, limit: int = 1000, max_bytes: int = 64 * 2**20) -> list[Entry]:
        limit = min(limit, self.upto - after)
        entries = super().read(after, limit=limit, max_bytes=max_bytes) if limit > 0 else []
        return [entry for entry in entries if entry.seq <= self.upto]


def main() -> None:
    """Be the process: work a projection up to each entry whose number comes in, and say how that went."""
    home, name = Path(sys.argv[1]), sys.argv[2]
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"
    )
    process.prepare()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for whatever a projection prints
    wanted: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(wanted,), daemon=True).start()
    with contextlib.closing(_BoundedJournal(home)) as journal:
        projection = None
        while True:
            journal.upto = wanted.get()
            try:
                if projection is None:
                    projection = _open(journal, name)
                    _bound_memory()
                outcome = _work(journal, projection)
            except Exception as error:
                log.exception("projection %s failed", name)
                outcome = _outcome_of(error)
                _close(projection)
                projection = None
            answers.write(msgspec.json.encode(outcome) + b"\n")
            answers.flush()


def _listen(wanted: queue.SimpleQueue[int]) -> None:
    """Take in what is wanted; without the runner, nothing is."""
    for line in sys.stdin:
        wanted.put(int(line))
    os._exit(0)


def _open(journal: Journal, name: str) -> Projection:
    opened, _ = open_projections(journal, obey(journal), name)
    return opened[0]


def _close(projection: Projection | None) -> None:
    """Close what failed, as well as that goes: the next try is made with another."""
    with contextlib.suppress(Exception):
        if projection is not None:
            projection.close()


def _work(journal: _BoundedJournal, projection: Projection) -> Outcome:
    while (cursor := journal.cursor(projection.name)) < journal.upto:
        step = projection.step()
        if step.applied or journal.cursor(projection.name) > cursor:
            continue
        if step.problem is not None:
            return _HELD_UP
        # It waits for more, or for an answer.
        projection.finish()
        time.sleep(_POLL_S)
    return _WELL


def _outcome_of(error: Exception) -> Outcome:
    if is_held_up(error):
        return _HELD_UP
    if isinstance(error, MemoryError):
        most = f"the {MEMORY_BYTES_MAX >> 30} GiB that one try may take"
        return Outcome(fault=f"it needs more memory than there is, or than {most}", is_scarce=True)
    fault = f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX]
    return Outcome(fault=fault, is_scarce=not isinstance(error, _OF_ENTRIES))


@functools.cache
def _bound_memory() -> None:
    """Let this process have only `MEMORY_BYTES_MAX` on top of what it has, where the system can say that."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        used_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmData:"))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (used_kib * 1024 + MEMORY_BYTES_MAX, hard))
