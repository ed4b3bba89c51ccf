"""The squash of an hour that has not ended: its many small raw files become few, each of one longer range.

A reader opens every raw file of an hour, and compacting again and again what still grows would rewrite all of
it each time. So a file is joined with those after it once they are as large together as it is, and a large
one is left alone until the hour is compacted: a row is rewritten few times.

The larger file is published before the smaller ones go. A crash in between leaves rows twice, which every
reader merges; the next squash removes what is left of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.exporter import parquet
from waybill.exporter.compaction.raw import by_hour
from waybill.exporter.directory import compacted_in, raw_files
from waybill.exporter.names import Hour, RawName, raw_folder
from waybill.exporter.parquet import Covers
from waybill.exporter.root_lock import root_lock
from waybill.transport.files import Files, publish

if TYPE_CHECKING:
    import pyarrow as pa

LARGE_BYTES: Final = 16 * 2**20
"""A raw file of this size is not made larger."""


def squash_hour(
    root: Path, hour: Hour, *, node: str, files: Files | None = None, large_bytes: int = LARGE_BYTES
) -> list[RawName]:
    """Make few raw files of the many that one journal has written for an hour.

    What a compaction has read already, or cannot be read, is left as it is.

    Args:
        root: the layout's root.
        hour: which.
        node: the journal; it must not write meanwhile.
        files: the file system.
        large_bytes: see `LARGE_BYTES`.

    Returns:
        The new files.

    Raises:
        OSError: a file could not be written; what was there still is, and doing it again mends it.
    """
    files = files or Files()
    with root_lock(root, files):
        paths = {raw: path for raw, path in raw_files(root, hour).items() if raw.node == node}
        for raw in [raw for raw in paths if _is_left_over(raw, paths)]:
            files.remove(paths.pop(raw))
        covered = _covered(root, hour)
        if covered is None:
            return []
        made = []
        for group in _groups(paths, covered, large_bytes):
            try:
                data = _joined([paths[raw] for raw in group])
            except parquet.DAMAGED:
                continue  # the compaction will tell
            raw = RawName(node, group[0].first, group[-1].last)
            publish(files, root / raw_folder(hour) / str(raw), data)
            for one in group:
                files.remove(paths[one])
            made.append(raw)
        return made


def _is_left_over(raw: RawName, among: dict[RawName, Path]) -> bool:
    """Whether it became part of a larger file, since ranges of one journal do not overlap otherwise."""
    return any(other != raw and other.first <= raw.first and raw.last <= other.last for other in among)


def _covered(root: Path, hour: Hour) -> Covers | None:
    """The ranges that compacted files of the hour have in them already; None where one does not tell."""
    covered = Covers()
    for _, path in compacted_in(root, hour):
        try:
            covered = covered.uniting(Covers.read(parquet.open_file(path).metadata.metadata))
        except FileNotFoundError:
            continue
        except parquet.DAMAGED:
            return None
    return covered


def _groups(paths: dict[RawName, Path], covered: Covers, large_bytes: int) -> Iterator[list[RawName]]:
    """Small files that follow each other, as many as make a large one; the new range holds nothing else."""
    group: dict[RawName, int] = {}
    for raw, path in paths.items():
        size_bytes = path.stat().st_size
        ends = size_bytes >= large_bytes or covered.has(raw)
        if ends or sum(group.values()) >= 2 * large_bytes:
            yield from _worthwhile(group)
            group = {}
        if not ends:
            group[raw] = size_bytes
    yield from _worthwhile(group)


def _worthwhile(group: dict[RawName, int]) -> Iterator[list[RawName]]:
    """The group, given with sizes in bytes, without the first files that are larger than all after them."""
    raws, after_bytes = list(group), sum(group.values())
    while len(raws) > 1:
        after_bytes -= group[raws[0]]
        if group[raws[0]] <= after_bytes:
            yield raws
            return
        raws.pop(0)


def _joined(paths: Sequence[Path]) -> memoryview:
    """The rows of files as one, about a row group at a time in memory."""
    rows = sum(parquet.open_file(path).metadata.num_rows for path in paths)
    encoder = parquet.Encoder(parquet.RAW_FILTERS, rows=rows)
    waiting: list[pa.Table] = []
    rows = 0
    for table in _row_groups(paths):
        if rows and rows + table.num_rows > parquet.ROW_GROUP:
            _add(encoder, waiting)
            waiting, rows = [], 0
        waiting.append(table)
        rows += table.num_rows
    _add(encoder, waiting)
    return encoder.finish()


def _row_groups(paths: Iterable[Path]) -> Iterator[pa.Table]:
    for path in paths:
        yield from parquet.row_groups(parquet.open_file(path))


def _add(encoder: parquet.Encoder, tables: list[pa.Table]) -> None:
    # In each row group the rows of a system are together, as a compaction wants them.
    for _, table in by_hour(parquet.join(tables)):
        encoder.add(table)
