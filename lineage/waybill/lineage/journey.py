"""The journey of a file: the files it came from, the file itself, and the files that came from it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from waybill.facets import ProvenanceRecord


class JourneyFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a journey.

    Attributes:
        did: the file's identity.
        records: one for each path on which it ended, oldest first; empty if nothing but its did is known.
        parents: the dids of the files that it came from, sorted.
        children: the dids of the files of the journey that came from it, oldest first.
    """

    did: str
    records: tuple[ProvenanceRecord, ...] = ()
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()

    @property
    def filename(self) -> str | None:
        """Its name; None if it is not known."""
        return self.records[0].filename if self.records else None


class ToldFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a journey as programs exchange it; for the fields see `JourneyFile`."""

    did: str
    parents: tuple[str, ...]
    records: tuple[ProvenanceRecord, ...]


class ToldJourney(msgspec.Struct, frozen=True, kw_only=True):
    """A journey as programs exchange it: its files in a list, without the children, which the parents imply.

    Attributes:
        did: the file that the journey is about.
        files: every file of the journey.
    """

    did: str
    files: tuple[ToldFile, ...]


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file came from, and what became of it.

    Attributes:
        did: the file that the journey is about.
        files: every file of the journey by its did. The dids of parents and children may lead out of it
            where the journey was cut.
    """

    did: str
    files: Mapping[str, JourneyFile]

    @classmethod
    def of(cls, told: ToldJourney) -> Journey:
        """The journey that a program was told."""
        return linked(told.did, told.files)

    def told(self) -> ToldJourney:
        """The journey as programs exchange it."""
        files = (
            ToldFile(did=one.did, parents=one.parents, records=one.records) for one in self.files.values()
        )
        return ToldJourney(did=self.did, files=tuple(files))

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


def linked(did: str, files: Iterable[ToldFile]) -> Journey:
    """The journey about a file, of files of which only the parents are known so far."""
    told = {file.did: file for file in files}
    children: defaultdict[str, list[str]] = defaultdict(list)
    for file in sorted(told.values(), key=_place_of):
        for parent in file.parents:
            children[parent].append(file.did)
    return Journey(
        did=did,
        files={
            one.did: JourneyFile(
                did=one.did,
                records=one.records,
                parents=one.parents,
                children=tuple(children.get(one.did, ())),
            )
            for one in told.values()
        },
    )


def _place_of(file: ToldFile) -> tuple[int, str, str]:
    """The place of a file among its siblings: by its beginning, and those of one split by their names."""
    if not file.records:
        return 0, "", file.did
    first = file.records[0]
    return first.created, first.filename, file.did
