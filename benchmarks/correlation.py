"""The correlation index: what it costs, and how soon it answers.

    python -m benchmarks.correlation

Records as DeltaFi sends them, one in ten with a parent, are indexed from the journal. Then trees of 10,000
files, about 50 generations deep, are indexed twice: with the closure, and with the edges alone, which a
recursive query follows. Both answer the same questions. At last one file is joined from all those of a tree,
so that it has more ancestors than the closure lists. Times are of CPU, in one thread.
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

import apsw

from benchmarks.ingest import record_lines
from benchmarks.measuring import Results, cpu_s, in_folder, parser_of
from benchmarks.records import START_MS
from waybill.lineage.correlation import (
    INDEX_NAME,
    Correlation,
    CorrelationIndex,
    Details,
    IndexWriter,
    Sighting,
)
from waybill.transport import Journal, Kind, Settings

TREE: Final = 10_000
BACK_MAX: Final = 400
"""A file's parent is one of so many files before it, so a tree is about `TREE` / `BACK_MAX` * 2 deep."""
BATCH: Final = 20_000
BODY: Final = 100
"""Records of one request."""
ASKED: Final = 100
MANY_MAX_MS: Final = 20
"""The goal for an answer of 10,000 files."""
FEW_MAX_MS: Final = 5
"""The goal for one of 100."""


def main() -> None:
    """Index the forest in both ways and ask both."""
    parser = parser_of(__doc__, rounds=1)
    parser.add_argument("--files", type=int, default=1_000_000, help="files (default 1,000,000)")
    in_folder(parser.parse_args(), _measure)


def _measure(arguments: Any, folder: Path) -> Results:  # noqa: ANN401 - an argparse.Namespace
    results: Results = [_records_measured(arguments.files, folder)]
    for name, ancestors_max in (("closure", 100), ("edges", 0)):
        home = folder / name
        home.mkdir()
        taken_s = 0.0
        with contextlib.closing(IndexWriter(home / INDEX_NAME, ancestors_max=ancestors_max)) as writer:
            for at, batch in enumerate(_batches(arguments.files), 1):
                began_s = cpu_s()
                writer.add(batch, ("node", at))
                taken_s += cpu_s() - began_s
        figures = _cost(name, arguments.files, taken_s, _size_bytes(home))
        with _opened(home) as index:
            middle = _with_about(index, 100)
            deepest = index.descendants(_did(0))[-1][0]
            figures |= _asked("descendants of a root", partial(index.descendants, _did(0)))
            figures |= _asked("descendants of one", partial(index.descendants, middle))
            figures |= _asked("ancestors of a leaf", partial(index.ancestors, deepest))
        with contextlib.closing(IndexWriter(home / INDEX_NAME, ancestors_max=ancestors_max)) as writer:
            joined = _did(arguments.files)
            tree = range(min(TREE, arguments.files))
            writer.add([_sighting(arguments.files, tuple(map(_did, tree)))], ("node", at + 1))
        with _opened(home) as index:
            figures |= _asked("ancestors of the joined file", partial(index.ancestors, joined))
            figures |= _asked("descendants of a root, then", partial(index.descendants, _did(0)))
            figures |= _asked("descendants of one, then", partial(index.descendants, middle))
        results.append(figures)
    print(f"goals for the p95: {MANY_MAX_MS} ms for 10,000 files, {FEW_MAX_MS} ms for 100")
    return results


@contextlib.contextmanager
def _opened(home: Path) -> Iterator[CorrelationIndex]:
    index = CorrelationIndex.open(home)
    assert index is not None
    with contextlib.closing(index):
        yield index


def _records_measured(count: int, folder: Path) -> dict[str, Any]:
    home = folder / "records"
    settings = Settings.load({"home": str(home), "root": str(folder / "root")}, env={})
    lines = record_lines(count)
    with contextlib.closing(Journal(home)) as journal:
        for at in range(0, count, BODY):
            journal.append(Kind.PROVENANCE, b"[" + b",".join(lines[at : at + BODY]) + b"]")
        with contextlib.closing(Correlation(journal, settings, linger_s=0)) as index:
            began_s = cpu_s()
            while index.step().applied:
                pass
            taken_s = cpu_s() - began_s
    return _cost("records", count, taken_s, _size_bytes(home))


def _size_bytes(home: Path) -> int:
    """The size of an index, without its log: that depends on the largest batch alone."""
    with contextlib.closing(apsw.Connection(str(home / INDEX_NAME))) as connection:
        return int(connection.pragma("page_count") * connection.pragma("page_size"))


def _cost(name: str, count: int, taken_s: float, size_bytes: int) -> dict[str, Any]:
    """Print what an index cost, and return it."""
    per_million_s, each_bytes = taken_s * 1e6 / count, size_bytes / count
    print(f"{name}: {per_million_s:.1f} CPU s per million files, {each_bytes:.0f} bytes per file", flush=True)
    return {"case": name, "cpu_s_per_million": per_million_s, "bytes_per_file": each_bytes}


def _did(number: int) -> str:
    return str(UUID(int=random.Random(number).getrandbits(128), version=4))  # noqa: S311 - no secret


def _batches(files: int) -> Iterator[list[Sighting]]:
    choice = random.Random(7)  # noqa: S311 - no secret
    batch: list[Sighting] = []
    for number in range(files):
        place = number % TREE
        parent = number - choice.randint(1, min(place, BACK_MAX)) if place else None
        batch.append(_sighting(number, () if parent is None else (_did(parent),)))
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _sighting(number: int, parents: tuple[str, ...]) -> Sighting:
    return Sighting(
        _did(number),
        parents,
        Details("in", ("lake",), ("COMPLETE",), "edge"),
        f"orders-{number:09}.csv",
        START_MS + number,
        START_MS + number,
    )


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
    median_ms, p95_ms = statistics.median(took_ms), sorted(took_ms)[int(ASKED * 0.95)]
    print(f"  {what}: {found:,} files in {median_ms:.2f} ms of CPU (p95 {p95_ms:.2f})", flush=True)
    return {f"{what}, ms": median_ms, f"{what}, p95 ms": p95_ms, f"{what}, files": found}


if __name__ == "__main__":
    main()
