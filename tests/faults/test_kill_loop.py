"""Real pipelines and the real runner, killed at random moments while events stream in."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest
from seam.chance import chance_from
from seam.homes import kill_runner, settings_in
from seam.ledger import Ledger
from seam.oracle import recover_and_check
from seam.town import Emitter

pytestmark = pytest.mark.faults

APART = 10_000
"""The distance between the first numbers of two emitters; none lives long enough to emit as many."""
ROUNDS = 4
LIFE_S_MAX = 1.0


def test_nothing_acknowledged_is_lost_when_processes_are_killed_at_random(tmp_path: Path, seed: int) -> None:
    settings = settings_in(tmp_path)
    chance = chance_from(seed)
    ledger, emitters, firsts = Ledger(), [], itertools.count(1, APART)

    def begin() -> None:
        durability = chance.choice(("power", "process"))
        emitters.append(Emitter(settings.home, settings.root, next(firsts), durability, os.environ))

    def end(emitter: Emitter) -> None:
        assert not emitter.has_ended(), "an emitter died by itself"
        emitter.kill()
        ledger.offered += emitter.ledger.offered
        ledger.acknowledged |= emitter.ledger.acknowledged

    begin()
    try:
        for _ in range(ROUNDS):
            begin()
            emitters[-1].wait_until_begun()
            time.sleep(chance.random() * LIFE_S_MAX)
            if chance.random() < 0.5:
                kill_runner(settings.home)
            end(emitters.pop(chance.randrange(len(emitters))))
    finally:
        while emitters:
            end(emitters.pop())
        kill_runner(settings.home)
    assert len(ledger.acknowledged) > ROUNDS
    recover_and_check(settings, ledger, fresh_number=next(firsts))
    kill_runner(settings.home)
