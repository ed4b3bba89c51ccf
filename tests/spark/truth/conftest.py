"""Jobs that end in every way; ``docs/spark.md`` has the table of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from stage import PREAMBLE, Play, Scene

if TYPE_CHECKING:
    from conftest import Run


@pytest.fixture(scope="module")
def play(run: Run) -> Play:
    """Run a program that tells in its last line how what it attempted has ended."""

    def play(text: str, *, status: int = 0, tells: bool = True, arguments: tuple[str, ...] = ()) -> Scene:
        ran = run(PREAMBLE + text, arguments=arguments)
        assert ran.status == status, f"{ran.status}\n{ran.stdout}\n{ran.stderr[-4000:]}"
        return Scene(ran, json.loads(ran.stdout.splitlines()[-1]) if tells else {})

    return play
