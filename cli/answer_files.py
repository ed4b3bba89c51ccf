"""Answers that are written to a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from . import console

if TYPE_CHECKING:
    import pyarrow as pa

_OPTION: Final = "--parquet"


def check_target(path: Path | None, *, replace: bool) -> None:
    """Raise a `typer.BadParameter` if an answer cannot be written to the file of `--parquet`."""
    if path is None:
        if replace:
            says = f"this replaces the file of {_OPTION}; leave it out"
            raise typer.BadParameter(says, param_hint="--force")
        return
    if not path.absolute().parent.is_dir():
        says = f"there is no folder {path.absolute().parent}; create it first"
        raise typer.BadParameter(says, param_hint=_OPTION)
    if path.exists() and (path.is_dir() or not replace):
        raise typer.BadParameter(_taken(path), param_hint=_OPTION)


def save(tables: Iterator[pa.Table], path: Path, *, replace: bool) -> str:
    """Write the records of an answer to a file, and return a sentence about it."""
    from waybill.exporter.query import write_answer

    try:
        rows = write_answer(tables, path.absolute(), replace=replace)
    except FileExistsError:
        raise typer.BadParameter(_taken(path), param_hint=_OPTION) from None
    return f"wrote {console.counted(rows, 'record')} to {path}"


def _taken(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder; give the name of a file"
    return f"there is a file {path} already; give another name, or --force to replace it"
