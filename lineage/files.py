"""The files of a journey, and the ways between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator

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
        """Where it begins: the files without a parent in the journey, and one of each circle without one."""
        known = {file.did: file for file in (self.file, *self.ancestors())}
        seen: set[str] = set()
        left = [did for start in known for did in self._leave(start, known, seen)]
        # From the last on, no file leads to an earlier one that does not lead back to it (Kosaraju).
        seen.clear()
        begins = {did for did in reversed(left) if did not in seen and [*self._leave(did, known, seen)]}
        return [file for did, file in known.items() if did in begins]

    def edges(self) -> list[tuple[str, str]]:
        """Each parent with each of its children."""
        return [
            (parent, file.did)
            for file in self.files.values()
            for parent in file.parents
            if parent in self.files
        ]

    def _leave(self, start: str, known: Container[str], seen: set[str]) -> Iterator[str]:
        """A file and what came from it, of those known and not `seen`, each after all that came from it."""
        waiting = [(start, False)]
        while waiting:
            did, is_left = waiting.pop()
            if is_left:
                yield did
            elif did not in seen:
                seen.add(did)
                waiting.append((did, True))
                waiting += [(child, False) for child in self.files[did].children if child in known]

    def _walk(self, next_of: Callable[[JourneyFile], tuple[str, ...]]) -> Iterator[JourneyFile]:
        seen, waiting = {self.did}, deque(next_of(self.file))
        while waiting:
            did = waiting.popleft()
            if did not in seen and did in self.files:
                seen.add(did)
                yield self.files[did]
                waiting.extend(next_of(self.files[did]))
