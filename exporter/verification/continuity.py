"""Whether the archive has all entries of each journal, one file after the other.

The numbers of a journal's entries have no gaps. So its files follow each other, from the oldest that no
age-off removed to the last that the journal began to write, as far as its claims in the root show. A range
that a node began but did not file before the journal got a new node is filed under the new one.

The layout cannot be checked this way: a range without records makes no raw file. Notes record which ranges
have one.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waybill.transport import RootError
from waybill.transport.root import CLAIMS, Claim, read_claims

from .. import parquet
from ..archive import archived_files
from ..directory import names
from ..ledger import is_archived
from ..names import ARCHIVE, Hour, RawName, hour_in, relative
from ..parquet import Covers
from ..raw_notes import not_there

if TYPE_CHECKING:
    from ..ledger import LedgerState


class Link(NamedTuple):
    """The seal of an archived file, and the seal that it names for its predecessor."""

    seal: str | None
    before: str | None


def claims(root: Path) -> dict[str, Claim]:
    """Each node's claim on the archive, by node; nodes whose claim cannot be read are left out."""
    found = {}
    for node in names(root / CLAIMS):
        with contextlib.suppress(OSError, RootError):
            if (claim := read_claims(root, node).get(ARCHIVE)) is not None:
                found[node] = claim
    return found


def gaps(
    root: Path, state: LedgerState, claimed: Mapping[str, Claim], aside: Iterable[str]
) -> Iterator[RawName]:
    """The ranges that the archive lacks, by journal, other than those of files that are gone or set aside.

    `claimed` holds the root's claims from before the archive was read: a range begun since is no gap. `aside`
    holds the paths from which files were quarantined.
    """
    ranges: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for path in (*state.seals, *aside):
        if is_archived(path) and (raw := RawName.parse(path.rpartition("/")[2])):
            ranges[raw.node].append((raw.first, raw.last))
    for raw, _ in archived_files(root):
        ranges[raw.node].append((raw.first, raw.last))
    known = claims(root)
    for node, now in known.items():
        # The last range begun may still be under way.
        if claimed.get(node) == now and not state.changing:
            later = min((one.first for one in known.values() if node in one.earlier), default=now.last + 1)
            end = min(now.last + 1, later)
            ranges[node].append((end, end - 1))
        ranges[node].append((now.first, now.first - 1))
    for node, found in sorted(ranges.items()):
        yield from _holes(node, sorted(found))


def _holes(node: str, ranges: list[tuple[int, int]]) -> Iterator[RawName]:
    upto = ranges[0][0] - 1
    for first, last in ranges:
        if first > upto + 1:
            yield RawName(node, upto + 1, first - 1)
        upto = max(upto, last)


def lost_raws(root: Path, noted: Mapping[Hour, Covers], settled: Collection[Hour]) -> dict[Hour, Covers]:
    """By hour, the noted ranges whose raw files are gone, and not compacted, but for `settled` hours."""
    found = {}
    for hour, covers in noted.items():
        with contextlib.suppress(*parquet.DAMAGED):  # which is a finding of its own
            lost = Covers() if hour in settled else not_there(root, covers, hour)
            if lost.ranges:
                found[hour] = lost
    return found


def unchained(root: Path, links: Mapping[Path, Link], state: LedgerState) -> Iterator[Path]:
    """The files of the archive that do not name the one before them; `links` are those that were read.

    A file that was filed again stands in no chain; another may name it, or the one that was lost.
    """
    aged = set(_aged(state))
    again = {seal for path in state.refiled for seal in state.seals[path] if seal is not None}
    before: dict[str, Path | None] = {}
    for name, path in sorted(archived_files(root)):
        if relative(root, path) in state.refiled:
            continue
        last = before.get(name.node)
        before[name.node] = path
        # An unreadable file has been reported already, and a newer one is for the next check.
        if path not in links or (last is not None and last not in links):
            continue
        named = links[path].before
        if named in again or (last is None and named in aged):
            continue
        if named != (None if last is None else links[last].seal):
            yield path


def _aged(state: LedgerState) -> Iterator[str | None]:
    """The seals of archived files that an age-off removed, or is removing now."""
    for path, (seal, before) in state.seals.items():
        if is_archived(path) and seal is None:
            yield before
        elif is_archived(path) and hour_in(path) in state.changing:
            yield seal
