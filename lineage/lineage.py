"""`Lineage`: the door to all answers about the files of a home, of a root, or of what was exported."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waybill.exporter import Query, reading
from waybill.exporter.object_stores import is_url
from waybill.exporter.query import STATS_BY, Dimension, Stats, find_tables, stats_of, sums_of
from waybill.exporter.reading import PYTHON, Asker
from waybill.facets import ProvenanceRecord
from waybill.facets.arrow import from_table
from waybill.transport import Journal, NotFoundError, Settings
from waybill.transport.config import obey

from .catalog import Catalog
from .kin import Kin, by_records, open_kin
from .records import Records
from .tracing import trace, trace_as_of

if TYPE_CHECKING:
    import os

    from waybill.transport.journal import FileContent

    from .file_table import JourneyFile
    from .index import BegunFile
    from .journey import Journey
    from .remote import CollectorClient


class Lineage:
    """The records of a home, of a root, of a destination of exports or of a collector, to read only.

    Each question sees every record that was accepted before it, whether or not it is in a file yet, as
    `waybill find` does. A run that has ended and may still change is left out.
    """

    def __init__(
        self,
        folder: Path,
        asker: Asker = PYTHON,
        *,
        collector: CollectorClient | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        self._folder = folder
        self._collector = collector
        self._catalog = catalog or Catalog()
        self._asker = asker

    @classmethod
    def open(cls, place: str | os.PathLike[str] | None = None, *, asker: Asker = PYTHON) -> Lineage:
        """Open a home, a root that is no home, a destination of exports, or a collector.

        Over HTTP, each method also raises `CollectorReadError`, and a question about a set of dids is one of
        these errors. The key is that of the setting `marquez_api_key`, `OPENLINEAGE_API_KEY` in the
        environment; it needs the role read.

        Of a destination, the files are asked that its manifests list. Each method also raises `NotFoundError`
        if nothing was exported there, and `SourceError` if the store does not answer.

        Args:
            place: its path; the URL of a destination, ``s3://…``, ``gs://…``, ``az://…`` or ``file://…``; the
                URL of a collector; None: the home of the settings, as the command `waybill` would take it.
            asker: who asks, where a program asks for somebody else; a collector goes by the key.

        Raises:
            NotFoundError: there is no such folder, or the kind of URL is unknown.
            MissingExtraError: the package for a destination is not installed.
            SettingsError: a setting is invalid.
        """
        settings = Settings.load({}, origin="Lineage.open")
        if isinstance(place, str) and place.startswith(("http://", "https://")):
            from .remote import CollectorClient

            client = CollectorClient(place, settings.marquez_api_key)
            return cls(settings.home, asker, collector=client)
        if isinstance(place, str) and is_url(place):
            from .catalog import open_exported

            exported = open_exported(place, settings.home)
            return cls(exported.root, asker, catalog=exported)
        place = settings.home if place is None else Path(place)
        if not place.is_dir():
            raise NotFoundError(f"there is no folder {place}; give the path of a home or of a root")
        return cls(place, asker, catalog=Catalog(kept_bytes=settings.query_cache_bytes))

    def find(self, query: Query | None = None) -> Records:
        """The records that answer a query, newest first; see `waybill.find` for what it raises."""
        if self._collector is not None:
            return self._collector.find(query or Query())
        return Records(record for table in self.tables(query) for record in from_table(table))

    def tables(
        self, query: Query | None = None, columns: Sequence[str] = ProvenanceRecord.__struct_fields__
    ) -> Iterator[Any]:
        """The records that answer a query, in `pyarrow.Table`s of bounded size with these columns.

        They come in the order of the query. Where only some of the columns are asked for, records of one
        instant come in any order. Raises what `find` does.
        """
        if self._collector is not None:
            yield self._collector.find(query or Query()).to_arrow().select(list(columns))
            return
        with open_kin(self._folder, query or Query()) as kin:
            yield from self._tables(kin, query, columns)

    def stats(self, query: Query | None = None) -> Stats:
        """The number of records that answer a query, by kind; raises what `waybill.find` does."""
        if self._collector is not None:
            return self._collector.stats(query or Query())
        with open_kin(self._folder, query or Query()) as kin:
            return stats_of(self._tables(kin, query, summed_by=STATS_BY))

    def sums(
        self, by: Collection[Dimension | str], query: Query | None = None
    ) -> dict[tuple[str | int | None, ...], int]:
        """The number of records that answer a query, of each kind, as `waybill find --by` shows them.

        Args:
            by: what makes a kind: some of state, system, source, sink and hour. A kind has a value of each,
                in this order: an hour as the epoch milliseconds of its start; None for no sink.
            query: the conditions; None: all records.

        Raises:
            ValueError: there is no such dimension, or none is given.
            WaybillError: those of `waybill.find`.
        """
        dimensions = [Dimension(one) for one in dict.fromkeys(by)]
        if not dimensions:
            raise ValueError(f"give at least one of {', '.join(Dimension)}")
        if self._collector is not None:
            return self._collector.sums(dimensions, query or Query())
        with open_kin(self._folder, query or Query()) as kin:
            return sums_of(self._tables(kin, query, summed_by=dimensions), dimensions)

    def _tables(
        self,
        kin: Kin,
        query: Query | None,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        return find_tables(
            self._folder,
            by_records(query or Query(), kin),
            columns=columns,
            summed_by=summed_by,
            access=self._catalog,
            asker=self._asker,
            below=kin.children_of,
        )

    def count(self, query: Query | None = None) -> int:
        """The number of records that answer a query, each once; raises what `waybill.find` does."""
        return self.stats(query).total_records

    def duplicates(self) -> list[list[FileContent]]:
        """The files that have the same content as another one, grouped by content, in the order of arrival.

        Only files whose fingerprints were recorded, which only a home has.

        Raises:
            NotFoundError: it is a collector, or a root that is no home.
            JournalError: the journal or the index cannot be read.
        """
        if self._collector is not None or not Journal.exists(self._folder):
            raise NotFoundError("only a home has fingerprints; open the home in which they were recorded")
        reading.allow(self._asker, "duplicates")
        with contextlib.closing(Journal(self._folder)) as journal:
            return list(journal.repeated_contents())

    def open_files(self) -> Sequence[BegunFile]:
        """The files and runs that have begun and not ended; only a home knows of any.

        Raises:
            NotFoundError: it is a collector.
            JournalError: the journal or the index cannot be read.
        """
        if self._collector is not None:
            raise NotFoundError("a collector does not list open files; ask the home")
        with open_kin(self._folder) as kin:
            return kin.open_files()

    def trace(
        self,
        did: str,
        *,
        up: bool = True,
        down: bool = True,
        depth: int | None = None,
        as_of_ms: int | None = None,
    ) -> Journey:
        """The journey of a file: see `waybill.lineage.trace`.

        Args:
            did: the file; a UUID may be spelled in any way.
            up: whether to follow its ancestors.
            down: whether to follow its descendants.
            depth: follow at most this many generations each way; None: all.
            as_of_ms: as it was known at this instant, epoch milliseconds; None: as it is known now.

        Raises:
            NotFoundError: nothing is recorded of it.
            EntriesGoneError: what was known at that instant cannot be said any more.
            IncompleteError: a file or an entry could not be read.
        """
        if self._collector is not None:
            return self._collector.trace(did, up=up, down=down, depth=depth, as_of_ms=as_of_ms)
        with open_kin(self._folder) as kin:
            ask = functools.partial(self._tables, kin)
            journey = trace(ask, did, up=up, down=down, depth=depth, kin=kin)
        if as_of_ms is None:
            return journey
        then = functools.partial(trace_as_of, journey, as_of_ms, up=up, down=down, depth=depth)
        if not Journal.exists(self._folder):
            return then(self._folder, None, Settings.load({}, origin="Lineage"))
        with contextlib.closing(Journal(self._folder)) as journal:
            settings = obey(journal)
            return then(settings.root, journal, settings)

    def ancestors(self, did: str) -> list[JourneyFile]:
        """The files that a file came from, the nearest first; raises what `trace` does."""
        return self.trace(did, down=False).ancestors()

    def descendants(self, did: str) -> list[JourneyFile]:
        """The files that came from a file, the nearest first; raises what `trace` does."""
        return self.trace(did, up=False).descendants()
