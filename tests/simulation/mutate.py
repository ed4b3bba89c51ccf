"""Puts faults into a copy of the product, one at a time, and shows how soon the simulation finds each.

``python tests/simulation/mutate.py [NUMBER…] [--drawn 10] [--sequences 2000]``; the numbers are those of the
table in `mutations.md`, and without any all are tried.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
PROJECT: Final = HERE.parents[1]
_CELL: Final = re.compile(r"(?<!\\)\|")


class Mutation(NamedTuple):
    """A fault: a text of a file that is there once, and what takes its place."""

    number: int
    file: str
    old: str
    new: str
    what: str


def mutations() -> dict[int, Mutation]:
    """Those of the table, by number."""
    found = {}
    for line in (HERE / "mutations.md").read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]
        if cells and cells[0].isdigit():
            old, new = (cell.strip("`").replace("\\n", "\n") for cell in cells[2:4])
            found[int(cells[0])] = Mutation(int(cells[0]), cells[1].strip("`"), old, new, cells[4])
    return found


def drawn(count: int) -> list[int]:
    """The same numbers each time."""
    return sorted(Random(46).sample(sorted(mutations()), count))  # noqa: S311 - the same each time


def run_with(mutation: Mutation, sequences: int) -> tuple[int, str]:
    """Run sequences until one fails; return how many ran, and what it said, empty if none has failed."""
    with tempfile.TemporaryDirectory(prefix="waybill-mutation-") as folder:
        copy = Path(folder)
        rooms = [path.name for path in (PROJECT / "src/waybill").iterdir() if path.is_symlink()]
        for name in ("src", "tests/simulation", "tests/faults", "tests/shared", *rooms):
            shutil.copytree(PROJECT / name, copy / name, symlinks=True)
        path = copy / mutation.file
        text = path.read_text()
        assert text.count(mutation.old) == 1, f"{mutation.number}: {mutation.old!r} is not once in {path}"
        path.write_text(text.replace(mutation.old, mutation.new))
        words = [sys.executable, str(copy / "tests/simulation/repeat.py"), "0", str(sequences - 1), "--first"]
        env = {**os.environ, "PYTHONPATH": str(copy / "src")}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if not done.returncode:
        return sequences, ""
    failed = re.search(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    assert failed is not None, done.stdout + done.stderr
    return int(failed[1]) + 1, failed[2]


def main() -> int:
    """Try the mutations that are asked for; the result is how many were not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--sequences", type=int, default=2_000)
    given, known, missed = parser.parse_args(), mutations(), 0
    for number in given.numbers or (drawn(given.drawn) if given.drawn else sorted(known)):
        after, said = run_with(known[number], given.sequences)
        missed += not said
        sys.stdout.write(f"{number} ({known[number].what}): {after}: {said[:300] or 'NOT FOUND'}\n")
        sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(bool(main()))
