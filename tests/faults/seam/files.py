"""The layout's file system, with a plan of failures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from waybill.transport.files import Files

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from seam.plan import Plan


class FaultyFiles(Files):
    """`Files` that consult the plan before each call."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def make_folder(self, path: Path) -> None:
        if not path.is_dir():  # one by one, so that each can be the last
            self.make_folder(path.parent)
            self._plan.reach("make folder", path)
        super().make_folder(path)

    def write(self, path: Path, data: ReadableBuffer) -> None:
        view = memoryview(data).cast("B")
        half = super().write
        self._plan.reach("write", path, lambda: half(path, view[: len(view) // 2]))
        super().write(path, data)
        self._plan.disk.created(path)
        self._plan.disk.wrote(path, 0, bytes(view))

    def fsync(self, path: Path) -> None:
        self._plan.reach("fsync", path)
        super().fsync(path)
        self._plan.disk.synced(path)

    def rename(self, source: Path, target: Path) -> None:
        self._plan.reach("rename", target)
        super().rename(source, target)
        self._plan.disk.renamed(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._plan.reach("link", target)
        super().link(source, target)
        self._plan.disk.linked(source, target)

    def fsync_folder(self, path: Path) -> None:
        self._plan.reach("fsync folder", path)
        super().fsync_folder(path)
        self._plan.disk.synced(path)

    def remove(self, path: Path) -> None:
        self._plan.reach("delete", path)
        super().remove(path)
        self._plan.disk.removed(path)

    def remove_folder(self, path: Path) -> None:
        self._plan.reach("delete folder", path)
        super().remove_folder(path)
