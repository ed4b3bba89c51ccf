"""What a write has left at its place, where nobody reported how it ended.

A job that is killed right after its write returned has begun a run and not ended it, although the result is
there: Hadoop's ``_SUCCESS``, the commit of a Delta or an Iceberg table. These are files, so a folder of this
machine can be looked at. The proof is what a commit says of itself, since anybody may commit to a table in
the meantime: Delta names the operation, its time and the engine, Iceberg the snapshot's Spark application.
``_SUCCESS`` says nothing, so its own time counts.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

LOOK_TIMEOUT_S: Final = 2.0
"""How long a look takes at most: a file system that is gone may never answer."""

_OPERATIONS: Final = (
    ("merge", r"MERGE"),
    ("update", r"UPDATE"),
    ("delete", r"DELETE"),
    ("table_as_select", r"(CREATE |REPLACE |OR )+TABLE AS SELECT"),
    ("create_table", r"CREATE (OR REPLACE )?TABLE"),
    ("", r"WRITE|STREAMING UPDATE"),
)
"""What the name of a job has, and the operation that Delta's commit then names; the first one counts."""


_BRANCH: Final = re.compile(r"\.(branch|wap)_[^.]+\Z")
"""The end of the name that a session gives to a branch, or a staged snapshot, of an Iceberg table."""


class Commit(msgspec.Struct, frozen=True):
    """The sign that a write was finished: its file's name, and when it was written, in epoch milliseconds."""

    name: str
    at_ms: int


def is_local(output: tuple[str, str]) -> bool:
    """Whether an output, as namespace and name, is a path of this machine."""
    namespace, name = output
    return namespace == "file" and name.startswith("/")


class Write(NamedTuple):
    """A write whose commit is looked for.

    Attributes:
        since_ms: when it began.
        job: the name of its job.
        application_id: that of its Spark application; empty if it is not known.
    """

    since_ms: int
    job: str
    application_id: str


def find_commit(outputs: Iterable[tuple[str, str]], write: Write) -> Commit | None:
    """The latest sign that a write finished all of these local outputs; None without one.

    Raises:
        OSError: a place cannot be read.
        TimeoutError: its file system does not answer.
    """
    found: list[Commit | None] = []
    failed: list[OSError] = []

    def look() -> None:
        try:
            found.extend(_latest(Path(name), write) for _, name in outputs)
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


def _latest(folder: Path, write: Write) -> Commit | None:
    commits = (commit for commit in _commits(folder, write) if commit.at_ms >= write.since_ms)
    return max(commits, key=lambda commit: commit.at_ms, default=None)


def _commits(folder: Path, write: Write) -> Iterator[Commit]:
    for path in folder.glob("_SUCCESS"):
        yield Commit(path.name, path.stat().st_mtime_ns // 1_000_000)
    operation = next(said for part, said in _OPERATIONS if part in write.job)  # the last one always is
    for path in folder.glob("_delta_log/*.json"):
        if path.stat().st_mtime_ns // 1_000_000 >= write.since_ms:
            with path.open("rb") as lines:
                found = [_read(_DELTA, line).commit for line in lines if b'"commitInfo"' in line]
            fitting = [one for one in found if re.fullmatch(operation, one.operation) and one.is_of_spark]
            yield from (Commit("_delta_log", one.at_ms) for one in fitting)
    table = folder.with_name(_BRANCH.sub("", folder.name))
    tables = table.glob("metadata/*.metadata.json")
    newest = max(tables, key=lambda path: path.stat().st_mtime_ns, default=None)
    for snapshot in () if newest is None else _read(_ICEBERG, newest.read_bytes()).snapshots:
        if write.application_id and snapshot.summary.get("spark.app.id") == write.application_id:
            yield Commit("metadata", snapshot.at_ms)


class _CommitInfo(msgspec.Struct):
    at_ms: int = msgspec.field(default=0, name="timestamp")
    operation: str = ""
    engine: str = msgspec.field(default="", name="engineInfo")

    @property
    def is_of_spark(self) -> bool:
        """Whether Spark made it; other engines give their commits the same operations."""
        return not self.engine or "Spark" in self.engine


class _Delta(msgspec.Struct):
    commit: _CommitInfo = msgspec.field(default_factory=_CommitInfo, name="commitInfo")


class _Snapshot(msgspec.Struct):
    at_ms: int = msgspec.field(default=0, name="timestamp-ms")
    summary: dict[str, str] = {}


class _Iceberg(msgspec.Struct):
    snapshots: list[_Snapshot] = []


_DELTA: Final = msgspec.json.Decoder(_Delta)
_ICEBERG: Final = msgspec.json.Decoder(_Iceberg)
_T = TypeVar("_T")


def _read(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """What a commit says; nothing if it cannot be read."""
    try:
        return decoder.decode(body)
    except msgspec.DecodeError:
        return decoder.decode(b"{}")
