"""The program that the faults hit: journal, spool, raw writer and compactor, one call after the other.

It makes the same calls in the same order each time. When something fails it does what its callers do: an
emitter notes the refusal and goes on, the runner tries a projection's step again.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from seam.emissions import FAILURE, Emission, emission, is_plain_run
from seam.files import FaultyFiles
from seam.plan import Act, Plan
from seam.sqlite import FaultySqlite
from seam.system import FaultySystem

from waybill.exporter.layout import Layout
from waybill.transport import Journal, JournalError, Settings
from waybill.transport.journal import Spool, adopt

if TYPE_CHECKING:
    from seam.ledger import Teller

    from waybill.transport.files import Files

STEPS_MAX: Final = 60
SEGMENT_BYTES: Final = 1_000
WANDERINGS: Final = 40
FRESH: Final = 900
"""The number of the first emission after the faults have ended."""


class Program:
    """One run of it.

    Args:
        settings: home and root.
        plan: what goes wrong.
        teller: where it says what it does.
        files: the layout's file system.
        vfs: the name of the journal's.
    """

    def __init__(self, settings: Settings, plan: Plan, teller: Teller, files: Files, vfs: str) -> None:
        self.settings = settings
        self.plan = plan
        self._teller = teller
        self._files = files
        self._vfs = vfs
        self.journal = self._open()
        self.restart_layout()
        self._spool: Spool | None = None
        self._kept: set[int] = set()

    def restart_layout(self) -> None:
        """Begin the projection anew, as another runner does."""
        self.layout = Layout(self.journal, self.settings, files=self._files, workers=1, linger_s=0.0)

    def run(self) -> None:
        """Everything that the journal, the spool, the raw writer and the compactor do."""
        for number in range(3):
            self.emit([emission(number)])
        self.work()
        self.emit([emission(3), emission(4), emission(5)])
        self.flush()
        self.spool([emission(6), emission(7)])
        self.spool([emission(8)])
        self.close_spool()
        # Late for hours that are compacted, and a run that failed after it had been recorded as complete.
        self.emit([emission(9)])
        if 1 in self._kept:
            self.emit([emission(FAILURE + 1)])
        self.emit([emission(2)])
        self.work()
        self.keep_house()
        self.flush()
        self._attempt(self.journal.checkpoint)

    def go_on(self) -> None:
        """What must work when the fault has ended, without a restart."""
        self.plan.ended = True
        self.emit([emission(FRESH)])
        self.spool([emission(FRESH + 1)])
        self.close_spool()
        self.flush()
        if self.journal.cursor("layout") < self.journal.last_seq():
            self._teller.tell("fault", f"the layout stands at {self.layout.step()} after the fault")

    def emit(self, emissions: Sequence[Emission]) -> None:
        """Keep emissions in the journal, all at once."""
        items = [item for one in emissions for item in one.items]
        self._offer(emissions, lambda: self.journal.append_many(items))

    def spool(self, emissions: Sequence[Emission]) -> None:
        """Keep emissions in the spool, one by one, then in the journal."""
        if self._spool is None:
            self._attempt(self._open_spool)
        if (spool_ := self._spool) is None:
            return
        if self.plan.act is Act.POWER:
            # What is in the spool survives its process at once, and the power only once it is synced.
            def append_and_sync() -> None:
                for one in emissions:
                    self._append(one)
                spool_.sync()

            self._offer(emissions, append_and_sync)
            return
        for one in emissions:
            self._offer([one], partial(self._append, one))
        self._attempt(spool_.sync)

    def close_spool(self) -> None:
        """Empty the spool and remove its files."""
        if self._spool is not None:
            self._attempt(self._spool.close)

    def flush(self) -> None:
        """Settle, write and compact everything."""
        if not self._attempt(lambda: adopt(self.journal, living=True)):
            return
        if not self._attempt(lambda: self.journal.mark(b"flush")):
            return
        self.work()
        if self.layout.pending() == 0:
            self._teller.tell("shown", sorted(self._kept))

    def step(self) -> None:
        """One step of the projection, whichever it is now."""
        self.layout.step()

    def work(self) -> None:
        """What the runner does: step by step, until nothing is left."""
        for _ in range(STEPS_MAX):
            # The runner, too, tries again whatever it was.
            with contextlib.suppress(Exception):
                step = self.layout.step()
                if not step.applied and not step.problem:
                    # What is pending, if anything, will settle with a flush or with time.
                    return

    def keep_house(self) -> None:
        """What the runner does between the steps."""
        self._attempt(lambda: adopt(self.journal))
        self._attempt(self.journal.checkpoint)
        self._attempt(lambda: self.journal.prune(self.journal.cursor("layout"), 2**50))

    def _open(self) -> Journal:
        try:
            return Journal(self.settings.home, vfs=self._vfs)
        except JournalError:
            # No emitter gets further than this while the fault lasts.
            self.plan.ended = True
            return Journal(self.settings.home, vfs=self._vfs)

    def _open_spool(self) -> None:
        self._spool = Spool(self.journal, segment_bytes=SEGMENT_BYTES, segment_s=float("inf")).open()

    def _append(self, one: Emission) -> None:
        assert self._spool is not None
        for item in one.items:
            self._spool.append(*item)

    def _offer(self, emissions: Sequence[Emission], keep: Callable[[], object]) -> None:
        for one in emissions:
            self._teller.tell("offer", one.number)
        try:
            keep()
        except JournalError as error:
            for one in emissions:
                self._teller.tell("refuse", [one.number, type(error).__name__])
        else:
            for one in emissions:
                self._kept.add(one.number)
                self._teller.tell("ack", one.number)

    def _attempt(self, do: Callable[[], object]) -> bool:
        try:
            do()
        except JournalError:
            return False
        return True


def begin(settings: Settings, plan: Plan, teller: Teller) -> Program:
    """Begin the program with a plan, in this process, which is thrown away afterwards."""
    # The program itself syncs the spool where it says so, and has it turn segments.
    Spool._start_thread = lambda self: None  # type: ignore[method-assign] # noqa: ARG005, SLF001
    plan.on_strike = lambda call: teller.tell("struck", [call.name, call.path])
    FaultySystem(plan, settings.home).install()
    sqlite = FaultySqlite(plan)
    return Program(settings, plan, teller, FaultyFiles(plan), sqlite.name)


def run_program(settings: Settings, plan: Plan, teller: Teller) -> None:
    """Run the program from end to end, once more after a fault that it lives through."""
    program = begin(settings, plan, teller)
    program.run()
    if plan.at is not None:
        program.go_on()
    else:
        for call in plan.calls:
            teller.tell("call", [call.name, call.path])


def wander(program: Program, chance: random.Random, first: int) -> None:
    """Do what emitters and a runner do, in an order that chance decides, as often as `WANDERINGS`.

    Args:
        program: whose parts do it.
        chance: decides.
        first: the number of the first emission.
    """
    numbers = itertools.count(first)
    failable: list[int] = []

    def emit() -> None:
        batch = [emission(next(numbers)) for _ in range(chance.randint(1, 3))]
        program.emit(batch)
        failable.extend(one.number for one in batch if is_plain_run(one.number))

    def fail() -> None:
        if failable:
            program.emit([emission(FAILURE + failable.pop(chance.randrange(len(failable))))])

    actions: tuple[tuple[int, Callable[[], object]], ...] = (
        (8, emit),
        (2, fail),
        (3, lambda: program.spool([emission(next(numbers)) for _ in range(2)])),
        (1, program.close_spool),
        (6, program.step),
        (3, program.flush),
        (2, program.keep_house),
        (1, program.restart_layout),
    )
    weights, does = zip(*actions, strict=True)
    for do in chance.choices(does, weights, k=WANDERINGS):
        do()
