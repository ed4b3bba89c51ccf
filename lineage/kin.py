"""What the index of a place knows beside the records; a place that is no home has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from waybill.exporter import Query

    from .index import OpenFile


class Kin(Protocol):
    """Who came directly from whom, besides what the records say, and what the runs of files read."""

    def parents_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """The files that each file came from; without files that came from none."""

    def children_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """The files that came from each file; without files that none came from."""

    def kin_of(self, did: str, *, up: bool, depth: int | None) -> frozenset[str]:
        """A file, and those that are likely its ancestors or its descendants, for reading them ahead.

        Some may be lacking or too many, so whoever asks follows the records all the same.

        Args:
            did: the file.
            up: its ancestors; else its descendants.
            depth: at most so many generations away; None: all.
        """

    def open_files(self) -> Sequence[OpenFile]:
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

    def kin_of(self, did: str, *, up: bool, depth: int | None) -> frozenset[str]:  # noqa: ARG002
        """None."""
        return frozenset()

    def open_files(self) -> Sequence[OpenFile]:
        """None."""
        return ()

    def dids_with_input(self, name: str) -> set[str]:  # noqa: ARG002
        """None."""
        return set()

    def dids_with_producer(self, uri: str) -> set[str]:  # noqa: ARG002
        """None."""
        return set()


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
