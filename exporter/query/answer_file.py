"""An answer as a Parquet file with the columns of the layout's files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.transport.files import Files, publish, publish_new

from ..parquet import COMPACTED_FILTERS, Encoder

if TYPE_CHECKING:
    import pyarrow as pa


def write_answer(
    tables: Iterable[pa.Table], path: Path, *, replace: bool = False, files: Files | None = None
) -> int:
    """Write the records of an answer to a file, all or nothing, and return how many there are.

    The folder must exist. It holds what is encoded until the file is complete, so that memory need not.

    Args:
        tables: the records, as `scan` and `answer` give them, in the order in which they are written.
        path: the file.
        replace: whether an existing file is replaced.
        files: the file system.

    Raises:
        FileExistsError: there is a file with other bytes, which is not to be replaced.
        OSError: it cannot be written; nothing is left of it.
        Exception: the errors of `tables`; nothing is written then.
    """
    encoder, rows = Encoder(COMPACTED_FILTERS, spool=path.parent), 0
    for table in tables:
        encoder.add(table)
        rows += table.num_rows
    (publish if replace else publish_new)(files or Files(), path, encoder.finish())
    return rows
