"""The journey of a file: the files it came from, the file itself, and the files that came from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from waybill.facets import ProvenanceRecord
from waybill.lineage.drawing import outline, svg
from waybill.lineage.files import JourneyFile, JourneyFiles
from waybill.transport.counting import counted


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


class Journey(JourneyFiles, frozen=True, kw_only=True):
    """Where a file came from, and what became of it. A notebook shows it as a drawing.

    Attributes:
        did: the file that the journey is about.
        files: every file of the journey by its did. The dids of parents and children may lead out of it
            where the journey was cut.
    """

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

    def __repr__(self) -> str:
        return f"<Journey of {self.did}: {counted(len(self.files), 'file')}>"

    def _repr_svg_(self) -> str:
        """The drawing that IPython shows: as `waybill trace --svg` makes it, with wide splits folded."""
        return svg(outline(self), about=self.did)


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
