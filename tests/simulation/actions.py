"""What happens in a world: a sequence of actions that a seed chooses."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from model import Run, event, told_body
from world import World, opened

from waybill.exporter.names import LAYOUT
from waybill.transport import RootError, WaybillError

LENGTH: Final = 200
RUNS: Final = 24
"""So few that each gets several events, in any order."""
LETTERS: Final = "SSRRCCFABG"
RETAIN_DAYS: Final = (1, 0.02, 1)
"""How long a journal keeps entries, and the layout runs; half an hour is over in most sequences."""
REPEATED: Final = 0.1
"""The share of emissions that are the last one once more."""
ASKED: Final = 0.25
"""The share of deaths after which somebody emits and asks before the projections go on."""


class Actions:
    """The actions of one sequence; `done` tells them in order."""

    def __init__(self, world: World, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self.done: list[str] = []
        self._told: list[tuple[Run, str]] = []
        """The events that were emitted last."""
        self._actions: tuple[tuple[int, Callable[[], object]], ...] = (
            (60, self.emit),
            (14, self.tell),
            (70, self.step),
            (14, self.keep_house),
            (16, self.wait),
            (2, self.wait_long),
            (2, self.set_back),
            (4, self.flush),
            (4, self.restart),
            (2, self.end_runner),
            (3, self.end_program),
            (1, self.delete_index),
            (6, self.change_mood),
            (3, self.ask),
            (2, self.export),
            (1, self.take_root_away),
            (6, self.bring_root_back),
            (8, self.crash),
            (4, self.fail),
            (2, self.fill_disk),
            (4, self.make_room),
        )

    def run(self, length: int = LENGTH) -> None:
        """Do so many actions, let everything settle, and check."""
        weights, does = zip(*self._actions, strict=True)
        for do in self._chance.choices(does, weights, k=length):
            self.done.append(do.__name__)
            do()
        self.done.append("settle")
        self._world.settle()
        self._world.check()
        self._world.finish()
        self._world.operations.check()

    def _note(self, what: object) -> None:
        self.done[-1] += f" {what}"

    def emit(self) -> None:
        """Some events of some runs, in any order, repeats among them."""
        world, chance = self._world, self._chance
        program = world.program if chance.random() < 0.7 else None
        told = [(Run(chance.randrange(RUNS)), chance.choice(LETTERS)) for _ in range(chance.randint(1, 4))]
        if chance.random() < REPEATED and self._told:
            told = self._told  # An emitter that got no answer tries it again.
        self._told = told
        self._note(" ".join(f"{run.number}{letter}" for run, letter in told))
        meant = {event(run, letter): partial(world.model.accept, run, letter) for run, letter in told}
        world.append(meant, durable=chance.random() < 0.5, program=program)

    def tell(self) -> None:
        """A record of a file, or another part of one that was told."""
        number, variant = self._chance.randrange(RUNS), self._chance.randrange(3)
        self._note(f"{number}.{variant}")
        meant = {told_body(number, variant): lambda _: self._world.model.told[number].add(variant)}
        self._world.append(meant, durable=self._chance.random() < 0.5, program=None)

    def step(self) -> None:
        name = self._chance.choice(sorted(self._world.projections))
        self._note(name)
        self._world.step(name)

    def step_layout(self) -> None:
        self._world.step(LAYOUT)

    def keep_house(self) -> None:
        self._world.keep_house()

    def wait(self) -> None:
        self._wait(self._chance.choice((0.01, 0.5, 2.0, 15.0, 70.0)))

    def wait_long(self) -> None:
        self._wait(self._chance.choice((1_800.0, 7_200.0, 30_000.0)))

    def _wait(self, seconds: float) -> None:
        self._note(seconds)
        self._world.clock.wait(seconds)
        self._world.rested()

    def set_back(self) -> None:
        seconds = self._chance.choice((1.0, 60.0, 4_000.0))
        self._note(seconds)
        self._world.clock.wall_s -= seconds

    def flush(self) -> None:
        self._world.flush()

    def restart(self) -> None:
        """The runner is gone without a word, and another one begins."""
        self._world.close()
        self._world.reopen()

    def end_runner(self) -> None:
        """The runner ends in good order, and another one begins."""
        self._world.finish()
        self._world.reopen()

    def crash(self) -> None:
        """Something is done whose process dies at one of its calls, or the power fails there."""
        world, chance = self._world, self._chance
        self.bring_root_back()
        do = self._choose_any()
        calls, loses_power = int(chance.expovariate(1 / 12)), chance.random() < 0.3
        self._note(f"{'power' if loses_power else 'kill'} at call {calls} of {do.__name__}")
        world.faults.kill_after(calls)
        try:
            do()
        except (WaybillError, OSError):
            if not world.faults.is_dead:
                raise
        if do == self.emit and world.faults.is_dead:
            world.end_program()
        world.die(loses_power=loses_power)
        if chance.random() < ASKED:
            self.emit()
            self.ask()

    def fail(self) -> None:
        """Something is done, and one of its calls fails."""
        faults, do, calls = self._world.faults, self._choose_any(), int(self._chance.expovariate(1 / 12))
        self._note(f"at call {calls} of {do.__name__}")
        faults.fail_after(calls)
        do()
        faults.end_failure()

    def _choose_any(self) -> Callable[[], object]:
        steps = (self.step, self.step, self.step_layout, self.step_layout)
        return self._chance.choice(
            (*steps, self.export, self.emit, self.tell, self.keep_house, self.flush, self.end_runner)
        )

    def fill_disk(self) -> None:
        calls = self._chance.randrange(60)
        self._note(f"after {calls} calls")
        self._world.faults.fill_after(calls)

    def make_room(self) -> None:
        self._world.faults.make_room()

    def end_program(self) -> None:
        self._world.end_program()

    def delete_index(self) -> None:
        for path in self._world.settings.home.glob("index.db*"):
            path.unlink()

    def change_mood(self) -> None:
        mood = self._chance.choice(("well", "well", "away", "silent", "unwell"))
        self._note(mood)
        self._world.backend.mood = mood

    def ask(self) -> None:
        try:
            self._world.ask()
        except RootError:
            if not self._world.operations.is_away:
                raise

    def export(self) -> None:
        try:
            self._world.operations.export()
        except (WaybillError, OSError):
            if not self._world.faults.are_there:
                raise

    def take_root_away(self) -> None:
        """The disk of the root is not mounted for a while."""
        self._world.operations.take_away(self._world.journal)

    def bring_root_back(self) -> None:
        self._world.operations.bring_back()


def simulate(seed: int, length: int = LENGTH) -> None:
    """Run the sequence of a seed; a failure says what was done, and how it is repeated."""
    chance = Random(seed)  # noqa: S311 - a seed gives the same sequence again
    with opened(chance, journal_retain_days=RETAIN_DAYS[seed % 3]) as world:
        actions = Actions(world, chance)
        try:
            actions.run(length)
        except BaseException as error:
            number = len(actions.done)
            error.add_note(f"after {number} actions, the last of them {json.dumps(actions.done[-12:])}")
            error.add_note(f"repeat with: .venv/bin/python tests/simulation/repeat.py {seed}")
            raise
