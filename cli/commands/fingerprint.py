"""`waybill fingerprint`: which files have the same content, however it is compressed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from waybill.transport import FingerprintError, Settings
from waybill.transport.errors import sentence_of

from .. import console
from ..arguments import JsonLines, argument, flag
from ..options import with_settings

if TYPE_CHECKING:
    from waybill.transport import Fingerprint

_STDIN: Final = "-"

_LONG_BYTES: Final = 2**28
"""Files from this size on show how far they are."""

_MIB: Final = 2**20


@with_settings("fingerprint_max_bytes")
def fingerprint(
    settings: Settings,
    paths: Annotated[list[str], argument("PATH...", "Files, or folders with --recursive; '-' is stdin.")],
    *,
    recursive: Annotated[
        bool, flag("--recursive", "Read every file in the folders, and below.", "-r")
    ] = False,
    as_json: JsonLines = False,
) -> None:
    """Print the fingerprint of each file's content, to compare files.

    Files with the same content have the same fingerprint. If a file is gzip, zstd, bzip2 or xz, which its
    first bytes tell, the content is what is inside. So a file that was compressed anew has the same
    fingerprint. Prints a line for each file, as sha256sum does: the fingerprint, two spaces, the path. Exit
    code 1 if a file could not be read; the others are still printed.

    Examples:
      waybill fingerprint orders.csv orders.csv.gz
      waybill fingerprint --recursive incoming | sort
      curl https://example.org/orders.csv.zst | waybill fingerprint -
    """
    failed: list[Exception] = []

    def fail(error: FingerprintError | OSError) -> None:
        if isinstance(error, IsADirectoryError):
            console.error(f"{error.filename} is a folder; give --recursive to read the files in it")
        else:
            console.error(sentence_of(error))
        failed.append(error)

    for path in paths:
        for file in _files_in(path, fail) if recursive and Path(path).is_dir() else (path,):
            try:
                found = _fingerprint_of(file, settings.fingerprint_max_bytes)
            except (FingerprintError, OSError) as error:
                fail(error)
            else:
                _show(file, found, as_json=as_json)
    console.fail_if(failed)


def _files_in(folder: str, fail: Callable[[OSError], None]) -> Iterator[str]:
    """The files in a folder and below, in order; neither links nor pipes and sockets."""
    for parent, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for path in (Path(parent, name) for name in sorted(names)):
            if path.is_file() and not path.is_symlink():
                yield str(path)


def _fingerprint_of(path: str, max_bytes: int) -> Fingerprint:
    from waybill.transport import fingerprint_of, fingerprint_of_stream

    if path == _STDIN:
        with open(0, "rb", buffering=0, closefd=False) as stream, console.progress("stdin, MiB") as update:
            return fingerprint_of_stream(
                stream, "stdin", max_bytes=max_bytes, on_read=lambda count: update(advance=count / _MIB)
            )
    size_bytes = os.stat(path).st_size  # noqa: PTH116 - errors name the path as it was given
    if size_bytes < _LONG_BYTES:
        return fingerprint_of(path, max_bytes=max_bytes)
    with console.progress(f"{path}, MiB", size_bytes // _MIB) as update:
        return fingerprint_of(path, max_bytes=max_bytes, on_read=lambda count: update(advance=count / _MIB))


def _show(path: str, found: Fingerprint, *, as_json: bool) -> None:
    if as_json:
        console.json(
            {
                "path": path,
                "fingerprint": str(found),
                "compression": found.compression,
                "input_bytes": found.input_bytes,
                "content_bytes": found.content_bytes,
            }
        )
        return
    console.line(f"{found}  {path}")
