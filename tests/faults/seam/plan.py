"""What is asked before each call that changes a disk, and told after it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from seam.disk import ForgetfulDisk

TAKES_ROOM: Final = frozenset({"write", "make folder", "create", "rename", "link"})
"""The calls that fail on a full disk; deletions do not."""


class Plan(ABC):
    """Decides whether a call happens.

    Attributes:
        disk: notes every change once it is made.
    """

    disk: ForgetfulDisk

    @abstractmethod
    def reach(self, name: str, path: Path, half: Callable[[], object] = lambda: None) -> None:
        """Let a call happen, or have it fail.

        Args:
            name: the operation.
            path: the file.
            half: does the first half of the operation, for what cuts a write.

        Raises:
            OSError: the call fails.
        """


def fail(number: int, path: Path) -> NoReturn:
    """Raise the error that the system call would raise."""
    raise OSError(number, os.strerror(number), str(path))
