"""The layout's file system with a plan of what fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seam.plan import Plan
from waybill.transport.files import Files

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class FaultyFiles(Files):
    """`Files` whose every call asks the plan first."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def make_folder(self, path: Path) -> None:
        if not path.is_dir():
            self._plan.reach("make folder", path)
        super().make_folder(path)

    def write(self, path: Path, data: ReadableBuffer) -> None:
        view = memoryview(data).cast("B")
        half = super().write
        self._plan.reach("write", path, lambda: half(path, view[: len(view) // 2]))
        super().write(path, data)

    def fsync(self, path: Path) -> None:
        self._plan.reach("fsync", path)
        super().fsync(path)

    def rename(self, source: Path, target: Path) -> None:
        self._plan.reach("rename", target)
        super().rename(source, target)

    def fsync_folder(self, path: Path) -> None:
        self._plan.reach("fsync folder", path)
        super().fsync_folder(path)

    def remove(self, path: Path) -> None:
        self._plan.reach("delete", path)
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        self._plan.reach("delete folder", path)
        super().remove_folder(path)
