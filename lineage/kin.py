"""What the index of a place knows beside the records; a place that is no home has none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from waybill.transport.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.exporter import Query

    from .index import BegunFile


class Kin(Protocol):
    """Who came directly from whom, besides what the records say, and what the runs of files read."""

    def parents_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """The files that each file came from; without files that came from none."""

    def children_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """The files that came from each file; without files that none came from."""

    def open_files(self) -> Sequence[BegunFile]:
        """All files that have begun and not ended."""

    def dids_with_input(self, name: str) -> set[str]:
        """The files whose run read a dataset, by its namespace and name, or the last part of its name."""

    def dids_with_producer(self, uri: str) -> set[str]:
        """The files of which an event has this producer."""


class NoKin:
    """Nothing is known beside the records."""

    def parents_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:  # noqa: ARG002
        """None."""
        return {}

    def children_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:  # noqa: ARG002
        """None."""
        return {}

    def open_files(self) -> Sequence[BegunFile]:
        """None."""
        return ()

    def dids_with_input(self, name: str) -> set[str]:  # noqa: ARG002
        """None."""
        return set()

    def dids_with_producer(self, uri: str) -> set[str]:  # noqa: ARG002
        """None."""
        return set()


@contextlib.contextmanager
def open_kin(home: Path, query: Query | None = None) -> Iterator[Kin]:
    """What a home knows beside the records, with what its index does not have yet.

    Args:
        home: the home; another folder has no index.
        query: the only question that is asked; what it does not need is not read.

    Raises:
        JournalError: the journal or the index cannot be read.
    """
    is_needed = query is None or any(
        (query.filename, query.input_dataset, query.producer, query.missing_sink)
    )
    if not is_needed or not Journal.exists(home):
        yield NoKin()
        return
    from .index import IndexReader

    with contextlib.closing(Journal(home)) as journal, IndexReader.open(home, journal) as reader:
        yield reader


def by_records(query: Query, kin: Kin) -> Query:
    """The query as records can answer it: with the dids of files that only the index finds.

    These are files that have its input and its producer, and files of which a further input has its filename.
    """
    wanted = query.dids
    if query.input_dataset is not None:
        reading = frozenset(kin.dids_with_input(query.input_dataset))
        wanted = reading if wanted is None else wanted & reading
    if query.producer is not None:
        produced = frozenset(kin.dids_with_producer(query.producer))
        wanted = produced if wanted is None else wanted & produced
    named = frozenset() if query.filename is None else frozenset(kin.dids_with_input(query.filename))
    return msgspec.structs.replace(query, input_dataset=None, producer=None, dids=wanted, filename_dids=named)
