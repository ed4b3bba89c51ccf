"""What a write has left at its place, where nobody reported how it ended.

A job that is killed right after its write returned has begun a run and not ended it, although the result is
there: Hadoop's ``_SUCCESS``, the commit of a Delta or an Iceberg table. These are files, so a folder of this
machine can be looked at. Who wrote them they do not say.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOOK_TIMEOUT_S: Final = 2.0
"""How long a look takes at most: a file system that is gone may never answer."""

_MARKERS: Final = ("_SUCCESS", "_delta_log/*.json", "metadata/*.metadata.json")


class Commit(msgspec.Struct, frozen=True):
    """The sign that a write was finished: its file's name, and when it was written, in epoch milliseconds."""

    name: str
    at_ms: int


def is_local(output: tuple[str, str]) -> bool:
    """Whether an output, as namespace and name, is a path of this machine."""
    namespace, name = output
    return namespace == "file" and name.startswith("/")


def find_commit(outputs: Iterable[tuple[str, str]], since_ms: int) -> Commit | None:
    """The latest sign that all of these local outputs were finished at or after a time; None without one.

    Raises:
        OSError: a place cannot be read.
        TimeoutError: its file system does not answer.
    """
    found: list[Commit | None] = []
    failed: list[OSError] = []

    def look() -> None:
        try:
            found.extend(_latest(Path(name), since_ms) for _, name in outputs)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=look, name="waybill-commits", daemon=True)
    thread.start()
    thread.join(LOOK_TIMEOUT_S)
    if failed:
        raise failed[0]
    if thread.is_alive():
        raise TimeoutError("its file system does not answer")
    commits = [commit for commit in found if commit is not None]
    if not commits or len(commits) < len(found):
        return None
    return max(commits, key=lambda commit: commit.at_ms)


def _latest(folder: Path, since_ms: int) -> Commit | None:
    commits = (commit for commit in _commits(folder) if commit.at_ms >= since_ms)
    return max(commits, key=lambda commit: commit.at_ms, default=None)


def _commits(folder: Path) -> Iterator[Commit]:
    for marker in _MARKERS:
        for path in folder.glob(marker):
            yield Commit(path.relative_to(folder).parts[0], path.stat().st_mtime_ns // 1_000_000)
