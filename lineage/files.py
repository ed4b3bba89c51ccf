"""The files of a journey, and the ways between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from .file_table import FileTable, JourneyFile


class JourneyFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files that came from each other, as seen from one of them.

    Attributes:
        did: the file that this is about.
        files: every file by its did. The dids of parents and children may lead out of it.
    """

    did: str
    files: FileTable

    @property
    def file(self) -> JourneyFile:
        """The file that the journey is about."""
        return self.files[self.did]

    def ancestors(self) -> list[JourneyFile]:
        """All files that it came from, the nearest first."""
        return list(self._walk(lambda file: file.parents))

    def descendants(self) -> list[JourneyFile]:
        """All files that came from it, the nearest first."""
        return list(self._walk(lambda file: file.children))

    def origins(self) -> list[JourneyFile]:
        """The files without a parent in the journey: where it begins."""
        known = [self.file, *self.ancestors()]
        return [file for file in known if not any(parent in self.files for parent in file.parents)] or [
            self.file
        ]

    def edges(self) -> list[tuple[str, str]]:
        """Each parent with each of its children."""
        return [
            (parent, file.did)
            for file in self.files.values()
            for parent in file.parents
            if parent in self.files
        ]

    def _walk(self, next_of: Callable[[JourneyFile], tuple[str, ...]]) -> Iterator[JourneyFile]:
        seen, waiting = {self.did}, deque(next_of(self.file))
        while waiting:
            did = waiting.popleft()
            if did not in seen and did in self.files:
                seen.add(did)
                yield self.files[did]
                waiting.extend(next_of(self.files[did]))
