"""How large the records are that an event makes, before they are made."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from .event import RunFacets
from .folding import has_record
from .overrides import read_error_cause, read_sayings

if TYPE_CHECKING:
    from .event import DatasetName, RunEvent

_NO_FACETS = RunFacets()


def made_chars(event: RunEvent) -> int:
    """How many characters the records that an event makes by itself may have together.

    Each output gives a record, and each of them repeats what the event says once. An event that carries its
    record makes none: 0.
    """
    if has_record(event):
        return 0
    facets = event.run.facets or _NO_FACETS
    cause = read_error_cause(facets)
    said = chain.from_iterable((saying.key, saying.value) for saying in read_sayings(facets))
    shared = len(event.run.runId) + len(event.job.namespace) + 2 * len(event.job.name)
    # A path is the data source, and the end of it the file's name.
    shared += 2 * max(_lengths(event.inputs), default=0)
    shared += sum(map(len, said)) + (len(cause[1]) if cause else 0)
    shared += len(facets.parent.run.runId) if facets.parent else 0
    outputs = event.outputs or ()
    return sum(_lengths(outputs)) + max(len(outputs), 1) * shared


def _lengths(datasets: Iterable[DatasetName] | None) -> Iterable[int]:
    return (len(one.namespace) + len(one.name) + 1 for one in datasets or ())
