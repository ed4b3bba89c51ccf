"""The work of one rebuild on disk: what was planned, so that it can be taken up where it was cut short."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.directory import names
from waybill.exporter.rebuilding.part import Site
from waybill.transport.errors import WaybillError
from waybill.transport.files import publish

if TYPE_CHECKING:
    from waybill.exporter.rebuilding.wanted import Wanted
    from waybill.exporter.sources import Source
    from waybill.transport.files import Files

WORK: Final = ".rebuild"
"""Folder of the rebuilds that are under way, below the root."""

_PLAN: Final = "plan.json"
_LOCK: Final = "lock"
_NODE_BYTES: Final = 6


class RebuildError(WaybillError):
    """A rebuild cannot be done now."""


class Plan(msgspec.Struct, frozen=True):
    """What a rebuild is about to do.

    Attributes:
        node: its own id in the names of raw files.
        source: what is read.
        parts: the parts of the source when it began.
    """

    node: str
    source: str
    parts: list[str]


class RebuildJob:
    """A rebuild that was begun or taken up; unless it is finished, the same order takes it up again.

    Attributes:
        plan: what it is about to do.
        site: where it writes.
    """

    def __init__(self, plan: Plan, site: Site) -> None:
        self.plan = plan
        self.site = site

    def finish(self) -> None:
        """Leave nothing to be taken up.

        Raises:
            OSError: something could not be removed.
        """
        files, folder = self.site.files, self.site.work
        # First what says that there is something to take up, so that a crash here leaves only litter.
        files.remove(folder / _PLAN)
        files.fsync_folder(folder)
        _clear(folder, files)
        files.remove(folder / _LOCK)
        files.remove_folder(folder)
        files.remove_folder(folder.parent)


def key_of_order(source: Source, wanted: Wanted) -> str:
    """A short name for what is to be rebuilt, the same for the same order."""
    return hashlib.sha256(msgspec.json.encode([source.describe(), *wanted.plain()])).hexdigest()[:16]


@contextlib.contextmanager
def begin_job(source: Source, root: Path, wanted: Wanted, files: Files) -> Iterator[RebuildJob]:
    """Begin a rebuild, or take up the same one where it was cut short.

    Args:
        source: what is read.
        root: the layout's root.
        wanted: which records.
        files: the file system.

    Raises:
        SourceError: the source has no parts to name.
        RebuildError: the same rebuild is under way in another process.
        OSError: the root cannot be written.
    """
    folder = root / WORK / key_of_order(source, wanted)
    files.make_folder(folder)
    with _locked(folder):
        path = folder / _PLAN
        if path.is_file():
            plan = msgspec.json.decode(path.read_bytes(), type=Plan)
        else:
            # What another left that died when it was done is of no use to this one.
            _clear(folder, files)
            plan = Plan(secrets.token_hex(_NODE_BYTES), source.describe(), source.parts())
            publish(files, path, msgspec.json.encode(plan))
        yield RebuildJob(plan, Site(root, folder, plan.node, files))


def _clear(folder: Path, files: Files) -> None:
    for name in names(folder):
        if name != _LOCK:
            files.remove(folder / name)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise RebuildError(
            f"this very rebuild is under way in another process ({folder} is locked); wait until it has ended"
        ) from None
    finally:
        os.close(descriptor)
