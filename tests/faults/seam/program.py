"""The program under fault: journal, raw writer and compactor, one call after the other.

It makes the same calls in the same order each time. When something fails, it acts like the real callers: an
emitter notes the refusal and continues, the runner retries a projection's step.
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

if TYPE_CHECKING:
    from seam.ledger import Teller

    from waybill.transport.files import Files

STEPS_MAX: Final = 60
WANDERINGS: Final = 40
FRESH: Final = 900
"""The number of the first emission after the faults have ended."""


class Program:
    """One run of the program.

    Args:
        settings: home and root.
        plan: the plan of failures.
        teller: gets its reports.
        files: the layout's file system.
        vfs: the name of the journal's file system.
    """

    def __init__(self, settings: Settings, plan: Plan, teller: Teller, files: Files, vfs: str) -> None:
        self.settings = settings
        self.plan = plan
        self._teller = teller
        self._files = files
        self._vfs = vfs
        self.journal = self._open()
        self.restart_layout()
        self._kept: set[int] = set()

    def restart_layout(self) -> None:
        """Start the projection again, as another runner would."""
        self.layout = Layout(self.journal, self.settings, files=self._files, workers=1, linger_s=0.0)

    def run(self) -> None:
        """Everything that the journal, the raw writer and the compactor do."""
        for number in range(3):
            self.emit([emission(number)])
        self.work()
        self.emit([emission(3), emission(4), emission(5)])
        self.flush()
        self.emit_unsynced([emission(6), emission(7)])
        self.emit_unsynced([emission(8)])
        # Late records for compacted hours, and a run that failed after it was recorded as complete.
        self.emit([emission(9)])
        if 1 in self._kept:
            self.emit([emission(FAILURE + 1)])
        self.emit([emission(2)])
        self.work()
        self.keep_house()
        self.flush()
        self._attempt(self.journal.checkpoint)

    def go_on(self) -> None:
        """Do what must work after the fault has ended, without a restart."""
        self.plan.ended = True
        self.emit([emission(FRESH)])
        self.emit_unsynced([emission(FRESH + 1)])
        self.flush()
        if self.journal.cursor("layout") < self.journal.last_seq():
            self._teller.tell("fault", f"the layout stands at {self.layout.step()} after the fault")

    def emit(self, emissions: Sequence[Emission]) -> None:
        """Append emissions to the journal, all at once."""
        items = [item for one in emissions for item in one.items]
        self._offer(emissions, lambda: self.journal.append_many(items))

    def emit_unsynced(self, emissions: Sequence[Emission]) -> None:
        """Append emissions one by one as with durability ``process``, then fsync them."""
        if self.plan.act is Act.POWER:
            # They survive a kill at once, but a power cut only once they are fsynced.
            def append_and_sync() -> None:
                for one in emissions:
                    self._append(one)
                self.journal.sync()

            self._offer(emissions, append_and_sync)
            return
        for one in emissions:
            self._offer([one], partial(self._append, one))
        self._attempt(self.journal.sync)

    def flush(self) -> None:
        """Settle, write and compact everything."""
        if not self._attempt(lambda: self.journal.mark(b"flush")):
            return
        self.work()
        if self.layout.pending() == 0:
            self._teller.tell("shown", sorted(self._kept))

    def step(self) -> None:
        """Do one step of the current projection."""
        self.layout.step()

    def work(self) -> None:
        """Do the runner's work, step by step, until nothing is left."""
        for _ in range(STEPS_MAX):
            # The runner also tries again, whatever the error.
            with contextlib.suppress(Exception):
                step = self.layout.step()
                if not step.applied and not step.problem:
                    # Pending runs settle with a flush or with time.
                    return

    def keep_house(self) -> None:
        """Do the runner's work between steps."""
        self._attempt(self.journal.checkpoint)
        self._attempt(lambda: self.journal.prune(self.journal.cursor("layout"), 2**50))

    def _open(self) -> Journal:
        try:
            return Journal(self.settings.home, vfs=self._vfs)
        except JournalError:
            # No emitter gets beyond this point while the fault lasts.
            self.plan.ended = True
            return Journal(self.settings.home, vfs=self._vfs)

    def _append(self, one: Emission) -> None:
        for item in one.items:
            self.journal.append(*item, durable=False)

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
    """Start the program with a plan, in this disposable process."""
    plan.on_strike = lambda call: teller.tell("struck", [call.name, call.path])
    FaultySystem(plan, settings.home).install()
    sqlite = FaultySqlite(plan)
    return Program(settings, plan, teller, FaultyFiles(plan), sqlite.name)


def run_program(settings: Settings, plan: Plan, teller: Teller) -> None:
    """Run the program from start to end, and again after a fault that it survives."""
    program = begin(settings, plan, teller)
    program.run()
    if plan.at is not None:
        program.go_on()
    else:
        for call in plan.calls:
            teller.tell("call", [call.name, call.path])


def wander(program: Program, chance: random.Random, first: int) -> None:
    """Do the work of emitters and a runner in random order, `WANDERINGS` times.

    Args:
        program: provides the steps.
        chance: decides the order.
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
        (3, lambda: program.emit_unsynced([emission(next(numbers)) for _ in range(2)])),
        (6, program.step),
        (3, program.flush),
        (2, program.keep_house),
        (1, program.restart_layout),
    )
    weights, does = zip(*actions, strict=True)
    for do in chance.choices(does, weights, k=WANDERINGS):
        do()
