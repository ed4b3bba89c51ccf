"""What can be asked of the provenance layout, as conditions on its columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.parquet import ALWAYS, TimeWindow
from waybill.facets import FinalState
from waybill.transport.errors import WaybillError

if TYPE_CHECKING:
    from waybill.exporter.names import Hour

_GLOB: Final = re.compile(r"[*?\[]")
_CLASS: Final = re.compile(r"\[(!?)(\]?[^\]]*)\]")
_EMPTY_CLASS: Final = re.compile(r"\[!?\]")


class PatternError(WaybillError):
    """A pattern of file names cannot be matched."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are asked for: those that meet every condition given; see `ProvenanceRecord`.

    Attributes:
        filename: a name, or a pattern with ``*``, ``?`` and ``[…]``.
        annotations: every one of these keys with exactly this value.
        since_ms: `completed` at or after this, in epoch milliseconds.
        until_ms: `completed` before this, in epoch milliseconds.
        limit: the newest so many; all when None.

    Raises:
        PatternError: `filename` is a pattern that nothing can match.
    """

    did: str | None = None
    parent_did: str | None = None
    data_source: str | None = None
    data_sink: str | None = None
    system_name: str | None = None
    filename: str | None = None
    final_state: FinalState | None = None
    annotations: Mapping[str, str] = {}
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.filename is not None and _GLOB.search(self.filename):
            try:
                # Only the engine itself knows all that it refuses.
                pc.match_substring_regex(pa.array([""]), _expression(self.filename))
            except pa.ArrowInvalid:
                raise _bad_pattern(self.filename) from None

    @property
    def window(self) -> TimeWindow:
        """The span of `completed`."""
        return TimeWindow(
            ALWAYS.since_ms if self.since_ms is None else self.since_ms,
            ALWAYS.until_ms if self.until_ms is None else self.until_ms,
        )

    def touches(self, hour: Hour) -> bool:
        """Whether an hour can hold any such record."""
        begins, ends = hour.start_ms, hour.end_ms
        return (self.since_ms is None or self.since_ms < ends) and (
            self.until_ms is None or self.until_ms > begins
        )

    def by_key(self) -> pc.Expression:
        """The conditions on the natural key: they hold for a record exactly if for each of its repeats."""
        wanted = pc.scalar(True)  # noqa: FBT003 - the neutral element of `and`
        equal = {
            "did": self.did,
            "system_name": self.system_name,
            "data_sink": self.data_sink,
            "final_state": self.final_state,
        }
        for name, value in equal.items():
            if value is not None:
                wanted &= pc.field(name) == str(value)
        if self.since_ms is not None:
            wanted &= pc.field("completed") >= _instant(self.since_ms)
        if self.until_ms is not None:
            wanted &= pc.field("completed") < _instant(self.until_ms)
        return wanted

    def texts_of_key(self) -> dict[str, str]:
        """By column with a Bloom filter, the text that `by_key` asks for."""
        return {} if self.did is None else {"did": self.did}

    def texts(self) -> dict[str, str]:
        """By column with a Bloom filter, the text that `by_key` and `by_rest` ask for."""
        texts = self.texts_of_key()
        if self.parent_did is not None:
            texts["parent_did"] = self.parent_did
        if self.filename is not None and not _GLOB.search(self.filename):
            texts["filename"] = self.filename
        return texts

    def by_rest(self) -> pc.Expression:
        """The conditions on the other fields, which a merge of repeats can change."""
        wanted = pc.scalar(True)  # noqa: FBT003 - the neutral element of `and`
        for name, value in {"parent_did": self.parent_did, "data_source": self.data_source}.items():
            if value is not None:
                wanted &= pc.field(name) == value
        if self.filename is not None:
            same = pc.field("filename") == self.filename
            if _GLOB.search(self.filename):
                same |= pc.match_substring_regex(pc.field("filename"), _expression(self.filename))
            wanted &= same
        for key, value in self.annotations.items():
            wanted &= pc.map_lookup(pc.field("annotations"), key, "first") == value
        return wanted


def _instant(epoch_ms: int) -> pa.Scalar:
    return pa.scalar(epoch_ms, pa.timestamp("ms", tz="UTC"))


def _bad_pattern(pattern: str) -> PatternError:
    return PatternError(
        f"{pattern[:60]!r} is no pattern that a name can match; between [ and ] give letters, or spans in "
        "order such as [a-z], and write [[] for a bracket itself"
    )


def _expression(pattern: str) -> str:
    """A glob as a regular expression of RE2; `fnmatch.translate` writes Python's own kind.

    Raises `PatternError` where a class is empty.
    """
    parts, at = [], 0
    while at < len(pattern):
        found = _CLASS.match(pattern, at)
        if found:
            letters = re.sub(r"([\\\[\]^])", r"\\\1", found[2])
            parts.append(f"[{'^' if found[1] else ''}{letters}]")
            at = found.end()
        elif _EMPTY_CLASS.match(pattern, at):
            raise _bad_pattern(pattern)
        else:
            parts.append({"*": ".*", "?": "."}.get(pattern[at]) or re.escape(pattern[at]))
            at += 1
    return f"(?s)^{''.join(parts)}$"
