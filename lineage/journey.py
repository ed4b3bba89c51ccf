"""The journey of a file: the files it came from, the file itself, and the files that came from it."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from waybill.facets import ProvenanceRecord
from waybill.facets.arrow import to_table, to_tables
from waybill.transport.counting import counted

from .drawing import boxes_of_journey, write_svg
from .file_table import FileTable
from .files import JourneyFiles
from .graph import Onward
from .index import JobRun, OpenFile


class ToldFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a journey as programs exchange it; for the fields see `JourneyFile`."""

    did: str
    parents: tuple[str, ...]
    records: tuple[ProvenanceRecord, ...]
    open: OpenFile | None = None
    run: JobRun | None = None


class ToldJourney(msgspec.Struct, frozen=True, kw_only=True):
    """A journey as programs exchange it: its files in a list, without the children, which the parents imply.

    Attributes:
        did: the file that the journey is about.
        files: every file of the journey.
        onward: the datasets that its files reached, and what came from these.
    """

    did: str
    files: tuple[ToldFile, ...]
    onward: Onward = Onward()


class Journey(JourneyFiles, frozen=True, kw_only=True):
    """Where a file came from, and what became of it. A notebook shows it as a drawing.

    Attributes:
        did: the file that the journey is about.
        files: every file of the journey by its did. The dids of parents and children may lead out of it
            where the journey was cut.
        onward: the datasets that files reached, the jobs that read these, what they wrote, and so on, as far
            as events name them. As of an instant, what had happened by then.
    """

    onward: Onward = Onward()

    @classmethod
    def of(cls, told: ToldJourney) -> Journey:
        """The journey that a program was told."""
        records = pa.concat_tables(
            [to_table([]), *to_tables(one for file in told.files for one in file.records)]
        )
        parents = ((parent, file.did) for file in told.files for parent in file.parents)
        open_files = [file.open for file in told.files if file.open is not None]
        dids = (file.did for file in told.files)
        runs = {file.did: file.run for file in told.files if file.run is not None}
        files = FileTable(records, dids, parents, open_files, runs)
        return cls(did=told.did, files=files, onward=told.onward)

    def told(self) -> ToldJourney:
        """The journey as programs exchange it."""
        files = (
            ToldFile(did=one.did, parents=one.parents, records=one.records, open=one.open, run=one.run)
            for one in self.files.values()
        )
        return ToldJourney(did=self.did, files=tuple(files), onward=self.onward)

    def __repr__(self) -> str:
        return f"<Journey of {self.did}: {counted(len(self.files), 'file')}>"

    def _repr_svg_(self) -> str:
        """The drawing that IPython shows: as `waybill trace --svg` makes it, with wide splits folded."""
        return write_svg(*boxes_of_journey(self))
