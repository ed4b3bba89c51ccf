"""The work of one rebuild on disk: what was planned, so that it can be taken up where it was cut short."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.rebuilding.part import Site
from waybill.transport.errors import WaybillError
from waybill.transport.files import Files, publish

if TYPE_CHECKING:
    from waybill.exporter.rebuilding.wanted import Wanted
    from waybill.exporter.sources.source import Source

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


@contextlib.contextmanager
def plan_work(source: Source, root: Path, wanted: Wanted) -> Iterator[tuple[Plan, Site]]:
    """Begin a rebuild, or take up the same one where it was cut short; its folder goes when all went well.

    Raises:
        SourceError: the source has no parts to name.
        RebuildError: the same rebuild is under way in another process.
        OSError: the root cannot be written.
    """
    files = Files()
    said = msgspec.json.encode([source.describe(), *wanted.plain()])
    folder = root / WORK / hashlib.sha256(said).hexdigest()[:16]
    files.make_folder(folder)
    with _locked(folder):
        path = folder / _PLAN
        if path.is_file():
            plan = msgspec.json.decode(path.read_bytes(), type=Plan)
        else:
            plan = Plan(secrets.token_hex(_NODE_BYTES), source.describe(), source.parts())
            publish(files, path, msgspec.json.encode(plan))
        yield plan, Site(root, folder, plan.node)
        # First what says that there is something to take up, so that a crash here leaves only litter.
        files.remove(path)
        files.fsync_folder(folder)
        shutil.rmtree(folder)
        files.remove_folder(folder.parent)


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
