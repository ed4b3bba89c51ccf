"""The correlation index over a deep forest: what it costs, and how soon it answers, closure and edges.

    python -m benchmarks.correlation

Trees of 10,000 files, about 50 generations deep, are indexed twice: with the closure, and with the edges
alone, which a recursive query follows. Both answer the same questions. Times are of CPU, in one thread.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from benchmarks.measuring import Results, cpu_s, in_folder, parser_of
from benchmarks.records import START_MS
from waybill.lineage.correlation import INDEX_NAME, CorrelationIndex, IndexWriter, Sighting

TREE: Final = 10_000
BACK_MAX: Final = 400
"""A file's parent is one of so many files before it, so a tree is about `TREE` / `BACK_MAX` * 2 deep."""
BATCH: Final = 20_000
ASKED: Final = 20


def main() -> None:
    """Index the forest in both ways and ask both."""
    parser = parser_of(__doc__, rounds=1)
    parser.add_argument("--files", type=int, default=1_000_000, help="files (default 1,000,000)")
    in_folder(parser.parse_args(), _measure)


def _measure(arguments: Any, folder: Path) -> Results:  # noqa: ANN401 - an argparse.Namespace
    results: Results = []
    for name, ancestors_max in (("closure", 100), ("edges", 0)):
        home = folder / name
        home.mkdir()
        taken_s = 0.0
        with contextlib.closing(IndexWriter(home / INDEX_NAME, ancestors_max=ancestors_max)) as writer:
            for at, batch in enumerate(_batches(arguments.files), 1):
                began_s = cpu_s()
                writer.add(batch, ("node", at))
                taken_s += cpu_s() - began_s
        size_bytes = sum(path.stat().st_size for path in home.iterdir())
        per_file = size_bytes / arguments.files
        per_million_s = taken_s * 1e6 / arguments.files
        print(
            f"{name}: {per_million_s:.1f} CPU s per million files, {per_file:.0f} bytes per file", flush=True
        )
        figures = {"case": name, "cpu_s_per_million": per_million_s, "bytes_per_file": per_file}
        index = CorrelationIndex.open(home)
        assert index is not None
        with contextlib.closing(index):
            middle = _with_about(index, 100)
            deepest = index.descendants(_did(0))[-1][0]
            figures |= _asked("descendants of a root", partial(index.descendants, _did(0)))
            figures |= _asked("descendants of one", partial(index.descendants, middle))
            figures |= _asked("ancestors of a leaf", partial(index.ancestors, deepest))
        results.append(figures)
    return results


def _did(number: int) -> str:
    return str(UUID(int=random.Random(number).getrandbits(128), version=4))  # noqa: S311 - no secret


def _batches(files: int) -> Iterator[list[Sighting]]:
    choice = random.Random(7)  # noqa: S311 - no secret
    batch: list[Sighting] = []
    for number in range(files):
        place = number % TREE
        parent = number - choice.randint(1, min(place, BACK_MAX)) if place else None
        batch.append(
            Sighting(
                did=_did(number),
                parents=() if parent is None else (_did(parent),),
                system="edge",
                process="in",
                filename=f"orders-{number:09}.csv",
                at_ms=START_MS + number,
                state="COMPLETE",
                sinks=("lake",),
            )
        )
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _with_about(index: CorrelationIndex, wanted: int) -> str:
    """A file of the first tree with about so many descendants."""
    sizes = {number: len(index.descendants(_did(number))) for number in range(0, TREE, 50)}
    return _did(min(sizes, key=lambda number: abs(sizes[number] - wanted)))


def _asked(what: str, ask: Callable[[], list[tuple[str, int]]]) -> dict[str, float]:
    found = len(ask())
    took_ms = []
    for _ in range(ASKED):
        began_s = cpu_s()
        ask()
        took_ms.append((cpu_s() - began_s) * 1_000)
    median_ms = statistics.median(took_ms)
    print(f"  {what}: {found:,} files in {median_ms:.2f} ms of CPU (median of {ASKED})", flush=True)
    return {f"{what}, ms": median_ms, f"{what}, files": found}


if __name__ == "__main__":
    main()
