"""The job of one rebuild: its plan and progress, so that an interrupted rebuild can be resumed.

Both are kept in a `BlobStore`, in a folder or in an object store, wherever the rebuild runs and wherever its
files go. A stored value exists completely or not at all, and storing it again stores the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from waybill.transport import locks
from waybill.transport.errors import WaybillError

from ..exporting import ReplacedError, open_blob_store

if TYPE_CHECKING:
    from waybill.transport.files import Files

    from ..sources import Source
    from .wanted import Wanted

WORK: Final = ".rebuild"
"""The folder of unfinished jobs, below the root."""

_PLAN: Final = "plan.json"
_ROLE: Final = "rebuild"
_LOCK: Final = f"{_ROLE}.lock"
_NODE_BYTES: Final = 6


class RebuildError(WaybillError):
    """The rebuild is not possible now."""


class Plan(msgspec.Struct, frozen=True):
    """The plan of a rebuild.

    Attributes:
        node: the job's id in the names of raw files.
        parts: the parts of the source when the job began.
        format: the number of the format of the progress; a job with another one starts from the beginning.
    """

    node: str
    source: str
    parts: list[str]
    format: Literal[2] = 2


class RebuildJob:
    """A job that was started or resumed.

    Attributes:
        store: keeps its progress, under names that the engine chooses.
    """

    def __init__(self, plan: Plan, place: Path | str, files: Files) -> None:
        self.plan = plan
        self._place = place
        self._files = files
        # An object store has no locks, so there each job keeps its own progress.
        own = f"{place}/{plan.node}" if isinstance(place, str) else place
        self.store = open_blob_store(own, files)

    def finish(self) -> None:
        """Remove the plan and the progress; raises as `BlobStore` does."""
        # The plan goes first, so a crash here leaves only garbage, which the next job removes.
        open_blob_store(self._place, self._files).delete([_PLAN])
        _clear(self._place, self._files)
        if isinstance(self._place, Path):
            self._files.remove(self._place / _LOCK)
            self._files.remove_folder(self._place)
            if self._place.parent.name == WORK:
                self._files.remove_folder(self._place.parent)


def key_of_order(source: Source, wanted: Wanted, *more: str) -> str:
    """A short name for a rebuild, the same for the same parameters."""
    order = [source.describe(), *more, *msgspec.structs.astuple(wanted)]
    return hashlib.sha256(msgspec.json.encode(order, order="deterministic")).hexdigest()[:16]


def place_below(root: Path | str, source: Source, wanted: Wanted) -> Path | str:
    """The folder for the job of a rebuild into this root."""
    key = key_of_order(source, wanted)
    return root / WORK / key if isinstance(root, Path) else f"{root}/{WORK}/{key}"


@contextlib.contextmanager
def begin_job(source: Source, place: Path | str, files: Files) -> Iterator[RebuildJob]:
    """Start a job, or resume the one that is kept in a place.

    A folder is locked meanwhile. In an object store, two processes with the same parameters share one plan:
    neither repeats finished work of the other.

    Raises:
        SourceError: the source has no parts.
        RebuildError: the same rebuild is running in another process.
        OSError: the folder cannot be written.
        DestinationError: the object store cannot be opened, or fails.
    """
    with contextlib.ExitStack() as held:
        made = []
        if isinstance(place, Path):
            made = [folder for folder in (place, *place.parents) if not folder.exists()]
            files.make_folder(place)
            lease = locks.reserve(place, _ROLE)
            if lease is None:
                what = f"the same rebuild is running in another process ({place} is locked)"
                raise RebuildError(f"{what}; wait until it ends")
            held.callback(lease.release)
        try:
            plan = _planned(source, place, files)
        except Exception:
            # A source that cannot be read at all leaves nothing behind.
            if place in made:
                files.remove(place / _LOCK)
                for folder in made:
                    files.remove_folder(folder)
            raise
        yield RebuildJob(plan, place, files)


def _planned(source: Source, place: Path | str, files: Files) -> Plan:
    store = open_blob_store(place, files)
    while (plan := _plan_in(found := store.read(_PLAN))) is None:
        if isinstance(place, Path):
            # Leftovers of a finished job, or of a job in another format, are of no use to this one.
            _clear(place, files)
            found = None
        plan = Plan(secrets.token_hex(_NODE_BYTES), source.describe(), source.parts())
        with contextlib.suppress(ReplacedError):
            store.write(_PLAN, msgspec.json.encode(plan), found[1] if found else None)
    return plan


def _plan_in(found: tuple[bytes, object] | None) -> Plan | None:
    if found is None:
        return None
    try:
        return msgspec.json.decode(found[0], type=Plan)
    except msgspec.DecodeError:
        return None


def _clear(place: Path | str, files: Files) -> None:
    store = open_blob_store(place, files)
    store.delete([name for name in store.names() if name != _LOCK])
    if isinstance(place, Path):
        for folder in sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True):
            files.remove_folder(folder)
