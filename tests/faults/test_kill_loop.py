"""Real pipelines and the real runner, killed at random moments while events stream in."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from seam.chance import chance_from
from seam.homes import kill_runner, settings_in
from seam.ledger import Ledger
from seam.oracle import recover_and_check

EMITTER = Path(__file__).parent / "seam" / "emitter.py"
APART = 10_000
"""The distance between the first numbers of two emitters; none lives long enough to emit as many."""
ROUNDS = 4
LIFE_S_MAX = 1.0


class Emitter:
    """A pipeline's process, and its reports."""

    def __init__(self, home: Path, root: Path, first: int, durability: str) -> None:
        self.ledger = Ledger()
        self._lines: list[bytes] = []
        self._errors = (home.parent / f"emitter-{first}.log").open("wb")
        environment = dict(os.environ) | {"PYTHONPATH": str(EMITTER.parent.parent)}
        words = [sys.executable, str(EMITTER), str(home), str(root), str(first), durability]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._errors, env=environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._born = threading.Event()
        self._reader.start()

    def wait_for_birth(self) -> None:
        """Wait until it has said something; only pytest limits how long a busy machine may take for that."""
        while not self._born.wait(1):
            self._check_alive()

    def kill(self) -> None:
        """End it as `kill -9` does, and take down what it had said."""
        self._check_alive()
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._errors.close()

    def _check_alive(self) -> None:
        assert self._process.poll() is None, (
            f"the emitter died by itself: {Path(self._errors.name).read_text()}"
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The kill may have cut the last line short.
            if line.endswith(b"\n"):
                self.ledger.take(line)
                self._born.set()


def test_nothing_acknowledged_is_lost_when_processes_are_killed_at_random(tmp_path: Path, seed: int) -> None:
    settings = settings_in(tmp_path)
    chance = chance_from(seed)
    ledger, emitters, firsts = Ledger(), [], itertools.count(1, APART)

    def begin() -> None:
        durability = chance.choice(("power", "process"))
        emitters.append(Emitter(settings.home, settings.root, next(firsts), durability))

    def end(emitter: Emitter) -> None:
        emitter.kill()
        ledger.offered += emitter.ledger.offered
        ledger.acknowledged |= emitter.ledger.acknowledged

    begin()
    try:
        for _ in range(ROUNDS):
            begin()
            emitters[-1].wait_for_birth()
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
