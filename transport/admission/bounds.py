"""Bounds: limits on name lengths, on item counts, and on the size of the records that one event produces.

A body of a few KB can expand to gigabytes of records: each output of an event produces a record, and each
record repeats the event's names. The defaults are far above anything that known clients send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import DatasetEvent, RunEvent
from waybill.facets.sizes import made_chars

from ..errors import AdmissionError

if TYPE_CHECKING:
    from waybill.facets import Event
    from waybill.facets.event import DatasetName, DeltaFile, Job
    from waybill.facets.record import RecordFields


class Bounds(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The limits for one event or record.

    Attributes:
        name_chars: the longest name or id, in characters.
        items: the most inputs, outputs, transforms, tags or annotations, each counted separately.
        made_chars: the total size of the records that one event produces, in characters.
    """

    name_chars: int = 2**16
    items: int = 100_000
    made_chars: int = 2**26

    @cached_property
    def free_bytes(self) -> int:
        """Records of at most so many bytes are within bounds: an item takes 2 bytes, a string its length."""
        return min(self.name_chars, self.items)

    @cached_property
    def free_event_bytes(self) -> int:
        """The same of an event, of which each dataset takes 26 bytes."""
        return min(self.free_bytes, isqrt(12 * self.made_chars))


DEFAULT_BOUNDS: Final = Bounds()

_SHORTER: Final = "shorten it, or raise the setting `admit_name_chars`"
_FEWER: Final = "send fewer, or raise the setting `admit_items`"
_LESS: Final = "send fewer outputs in one event, shorten its names, or raise the setting `admit_made_chars`"

_ENCODER: Final = msgspec.json.Encoder()

_Found = tuple[str, Sized | None]
"""The path of a value, and the value whose length is limited."""


def check_event_bounds(event: Event, bounds: Bounds) -> None:
    """Raise an `AdmissionError` if an event is out of bounds."""
    _check(_names_in(event), bounds.name_chars, "characters", _SHORTER)
    _check(_lists_in(event), bounds.items, "elements", _FEWER)
    if isinstance(event, RunEvent) and (chars := made_chars(event)) > bounds.made_chars:
        what = f"would produce records of {chars:,} characters; the limit is {bounds.made_chars:,}"
        raise AdmissionError("$.outputs", what, _LESS)


def check_record_bounds(body: bytes, records: Iterable[RecordFields], bounds: Bounds) -> None:
    """Raise an `AdmissionError` if one of the records decoded from a body is out of bounds."""
    for at, record in enumerate(records):
        if len(record.transforms or ()) > bounds.items or len(record.annotations or ()) > bounds.items:
            _check(_lists_of(record, f"$[{at}]"), bounds.items, "elements", _FEWER)
    if not _may_hold_text(body, bounds.name_chars):
        return
    for at, record in enumerate(records):
        # Encoding is much faster than checking each field, and a small record has no large field.
        if len(_ENCODER.encode(record)) > bounds.name_chars:
            _check(_names_of(record, f"$[{at}]"), bounds.name_chars, "characters", _SHORTER)


def _may_hold_text(body: bytes, chars: int) -> bool:
    """Whether a JSON text can contain a longer string: a stretch of that length without a quote."""
    if b"\\" in body and b'\\"' in body:  # searching for a single byte is much faster
        return True
    # A string of that length covers at least one of these stretches, wherever it begins.
    step = max(chars // 2, 1)
    return any(body.find(b'"', at, at + step) < 0 for at in range(0, len(body) - step + 1, step))


def _check(found: Iterable[_Found], most: int, unit: str, way_out: str) -> None:
    for where, bounded in found:
        if bounded is not None and len(bounded) > most:
            raise AdmissionError(where, f"has {len(bounded):,} {unit}; the limit is {most:,}", way_out)


def _names_in(event: Event) -> Iterator[_Found]:
    if isinstance(event, DatasetEvent):
        yield from _dataset(event.dataset, "$.dataset")
        return
    yield from _dataset(event.job, "$.job")
    for name, datasets in (("inputs", event.inputs), ("outputs", event.outputs)):
        for at, dataset in enumerate(datasets or ()):
            yield from _dataset(dataset, f"$.{name}[{at}]")
    if isinstance(event, RunEvent):
        yield "$.run.runId", event.run.runId
        facets = event.run.facets
        if facets is not None and facets.parent is not None:
            yield "$.run.facets.parent.run.runId", facets.parent.run.runId
        if facets is not None and facets.delta_file is not None:
            yield from _names_of(facets.delta_file, "$.run.facets.waybill_deltaFile")


def _lists_in(event: Event) -> Iterator[_Found]:
    if not isinstance(event, DatasetEvent):
        yield "$.inputs", event.inputs
        yield "$.outputs", event.outputs
    if isinstance(event, RunEvent) and (facets := event.run.facets) is not None:
        if facets.tags is not None:
            yield "$.run.facets.tags.tags", facets.tags.tags
        if facets.delta_file is not None:
            yield from _lists_of(facets.delta_file, "$.run.facets.waybill_deltaFile")


def _dataset(named: DatasetName | Job, where: str) -> Iterator[_Found]:
    yield f"{where}.namespace", named.namespace
    yield f"{where}.name", named.name


def _names_of(fields: RecordFields | DeltaFile, where: str) -> Iterator[_Found]:
    yield f"{where}.did", fields.did
    yield f"{where}.parentDid", fields.parent_did
    yield f"{where}.systemName", fields.system_name
    yield f"{where}.dataSource", fields.data_source
    yield f"{where}.filename", fields.filename
    yield f"{where}.dataSink", fields.data_sink
    for at, text in enumerate(fields.transforms or ()):
        yield f"{where}.transforms[{at}]", text


def _lists_of(fields: RecordFields | DeltaFile, where: str) -> Iterator[_Found]:
    yield f"{where}.transforms", fields.transforms
    yield f"{where}.annotations", fields.annotations
