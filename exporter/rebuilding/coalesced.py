"""Files that a backend only counts, because a delivery sent summaries instead of each file.

A summary is not a file, so it never becomes a record. A rebuild adds up the summaries and reports by flow how
many records are missing, and from when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.counting import counted

if TYPE_CHECKING:
    from waybill.facets import RunState

    from .wanted import Wanted


_ELSEWHERE: Final = "the archive has the files themselves: `waybill rebuild --from events ROOT`"


class CoalescedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one flow that summaries count.

    Attributes:
        system_name: empty, as `data_source` is, where the summaries cannot be read.
        records: how many records the files have.
        summaries: how many summaries count them, each once however often it is stored.
        first_ms: where the first window begins, epoch milliseconds; 0 where it is unknown.
        last_ms: where the last window ends.
    """

    system_name: str
    data_source: str
    records: int
    summaries: int
    first_ms: int
    last_ms: int

    @property
    def sentence(self) -> str:
        """What is missing, and where it can be found."""
        if not self.last_ms:
            return f"{counted(self.summaries, 'summary', 'summaries')} of files cannot be read; {_ELSEWHERE}"
        window = f"from {_instant(self.first_ms)} to {_instant(self.last_ms)}"
        records, summaries = counted(self.records, "record"), counted(self.summaries, "summary", "summaries")
        are, count = ("is" if self.records == 1 else "are"), ("counts" if self.summaries == 1 else "count")
        return (
            f"{records} of {self.system_name}/{self.data_source} {window} {are} missing: "
            f"{summaries} only {count} {'it' if self.records == 1 else 'them'}; {_ELSEWHERE}"
        )


def counted_flows(states: Iterable[RunState], wanted: Wanted) -> list[CoalescedFlow]:
    """What the summaries among some runs count, as far as it is wanted, given all that is known of each."""
    summaries = [state.coalesced for state in states if state.coalesced is not None]
    return add_up(
        CoalescedFlow(
            system_name=seen.system_name,
            data_source=seen.data_source,
            records=seen.records,
            summaries=1,
            first_ms=seen.start_us // 1_000,
            last_ms=seen.end_us // 1_000,
        )
        for seen in summaries
        # A window that cannot be read may be one that is wanted.
        if not seen.of_transform
        and (not seen.end_us or wanted.may_hold(seen.system_name, seen.start_us, seen.end_us))
    )


def add_up(flows: Iterable[CoalescedFlow]) -> list[CoalescedFlow]:
    """What several summaries of a flow count, by the names of the flows."""
    by_name: defaultdict[tuple[str, str], list[CoalescedFlow]] = defaultdict(list)
    for flow in flows:
        by_name[flow.system_name, flow.data_source].append(flow)
    return [
        CoalescedFlow(
            system_name=system_name,
            data_source=data_source,
            records=sum(flow.records for flow in some),
            summaries=sum(flow.summaries for flow in some),
            first_ms=min(flow.first_ms for flow in some),
            last_ms=max(flow.last_ms for flow in some),
        )
        for (system_name, data_source), some in sorted(by_name.items())
    ]


def _instant(epoch_ms: int) -> str:
    return f"{datetime.fromtimestamp(epoch_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
