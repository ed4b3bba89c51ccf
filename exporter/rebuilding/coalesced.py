"""Files that a backend only counts, because a delivery sent summaries instead of each file.

A summary is not a file, so it never becomes a record. A rebuild adds up the summaries and reports by flow how
many records are missing, and from when.
"""

from __future__ import annotations

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


class CoalescedCounts:
    """Adds up what summaries count, as far as it is wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._flows: dict[tuple[str, str], CoalescedFlow] = {}

    def add(self, state: RunState) -> None:
        """Add a run, with all that is known of it; one that is no summary of files adds nothing."""
        seen = state.coalesced
        if seen is None or seen.of_transform:
            return
        # A window that cannot be read may be one that is wanted.
        if seen.end_us and not self._wanted.may_hold(seen.system_name, seen.start_us, seen.end_us):
            return
        self.add_flow(
            CoalescedFlow(
                system_name=seen.system_name,
                data_source=seen.data_source,
                records=seen.records,
                summaries=1,
                first_ms=seen.start_us // 1_000,
                last_ms=seen.end_us // 1_000,
            )
        )

    def add_flow(self, flow: CoalescedFlow) -> None:
        """Add what other summaries of a flow count."""
        key = flow.system_name, flow.data_source
        known = self._flows.get(key, flow)
        self._flows[key] = CoalescedFlow(
            system_name=flow.system_name,
            data_source=flow.data_source,
            records=flow.records + (known.records if known is not flow else 0),
            summaries=flow.summaries + (known.summaries if known is not flow else 0),
            first_ms=min(flow.first_ms, known.first_ms),
            last_ms=max(flow.last_ms, known.last_ms),
        )

    def flows(self) -> list[CoalescedFlow]:
        """The flows, by name."""
        return [self._flows[key] for key in sorted(self._flows)]


def _instant(epoch_ms: int) -> str:
    return f"{datetime.fromtimestamp(epoch_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
