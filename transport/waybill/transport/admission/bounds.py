"""Bounds: how long names may be, how many of something one event or record may have, and what that makes.

A body of a few KB may stand for gigabytes of records, because each output of an event gives a record and each
of those repeats the event's names. The defaults are far above what any client is known to send.
"""

from __future__ import annotations

from collections.abc import Sized
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import DatasetEvent, RunEvent
from waybill.facets.sizes import made_chars
from waybill.transport.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from waybill.facets import Event
    from waybill.facets.event import DatasetName, DeltaFile, Job
    from waybill.facets.record import SentRecord


class Bounds(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What one event or record may have at most.

    Attributes:
        name_chars: characters in a name or an id.
        items: inputs, outputs, transforms, tags or annotations, of each.
        made_chars: characters in the records that one event makes, together.
    """

    name_chars: int = 2**16
    items: int = 100_000
    made_chars: int = 2**26

    @cached_property
    def free_bytes(self) -> int:
        """A body of so many bytes is within bounds: a dataset takes 26 bytes, a text its characters."""
        return min(self.name_chars, self.items, isqrt(12 * self.made_chars))


DEFAULT_BOUNDS: Final = Bounds()

_SHORTER: Final = "send a shorter one, or raise the setting `admit_name_chars`"
_FEWER: Final = "send fewer, or raise the setting `admit_items`"
_LESS: Final = "send fewer outputs in one event, shorten its names, or raise the setting `admit_made_chars`"

_ENCODER: Final = msgspec.json.Encoder()

_Found = tuple[str, Sized | None]
"""What is bounded, and where it stands."""


def check_event_bounds(event: Event, bounds: Bounds) -> None:
    """Refuse an event that is out of bounds by an `AdmissionError`."""
    _check(_names_in(event), bounds.name_chars, "characters", _SHORTER)
    _check(_lists_in(event), bounds.items, "elements", _FEWER)
    if isinstance(event, RunEvent) and (chars := made_chars(event)) > bounds.made_chars:
        what = f"would make records of {chars:,} characters, and at most {bounds.made_chars:,} are taken"
        raise AdmissionError("$.outputs", what, _LESS)


def check_record_bounds(body: bytes, records: Iterable[SentRecord], bounds: Bounds) -> None:
    """Refuse records, decoded from a body, if one of them is out of bounds by an `AdmissionError`."""
    for at, record in enumerate(records):
        if len(record.transforms or ()) > bounds.items or len(record.annotations or ()) > bounds.items:
            _check(_lists_of(record, f"$[{at}]"), bounds.items, "elements", _FEWER)
    if not _may_hold_text(body, bounds.name_chars):
        return
    for at, record in enumerate(records):
        # Encoding is far quicker than looking at each field, and what is small as a whole has no large part.
        if len(_ENCODER.encode(record)) > bounds.name_chars:
            _check(_names_of(record, f"$[{at}]"), bounds.name_chars, "characters", _SHORTER)


def _may_hold_text(body: bytes, chars: int) -> bool:
    """Whether a JSON text can hold a text of more characters: somewhere there is no quote for as long."""
    if b"\\" in body and b'\\"' in body:  # a single byte is found far faster
        return True
    # Whatever is as long covers one of these, wherever it begins.
    step = max(chars // 2, 1)
    return any(body.find(b'"', at, at + step) < 0 for at in range(0, len(body) - step + 1, step))


def _check(found: Iterable[_Found], most: int, unit: str, way_out: str) -> None:
    for where, bounded in found:
        if bounded is not None and len(bounded) > most:
            raise AdmissionError(
                where, f"has {len(bounded):,} {unit}, and at most {most:,} are taken", way_out
            )


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


def _names_of(fields: SentRecord | DeltaFile, where: str) -> Iterator[_Found]:
    yield f"{where}.did", fields.did
    yield f"{where}.parentDid", fields.parent_did
    yield f"{where}.systemName", fields.system_name
    yield f"{where}.dataSource", fields.data_source
    yield f"{where}.filename", fields.filename
    yield f"{where}.dataSink", fields.data_sink
    for at, text in enumerate(fields.transforms or ()):
        yield f"{where}.transforms[{at}]", text


def _lists_of(fields: SentRecord | DeltaFile, where: str) -> Iterator[_Found]:
    yield f"{where}.transforms", fields.transforms
    yield f"{where}.annotations", fields.annotations
