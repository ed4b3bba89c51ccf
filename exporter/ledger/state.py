"""The combined state of a ledger's entries, and the doubts that they leave.

A doubt is a finding that stays, whatever happens to the files afterwards, until somebody accepts it: a file
that was missing or differed from the ledger when another took its place, or a quarantined file.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from ..names import EVENTS, LEDGER, Hour, hour_in
from .entries import LedgerEntry, decode, hash_of, read_entries

_ID_DIGITS: Final = 12
_UNKNOWN: Final = (None, None)


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """A doubt that an entry leaves.

    Attributes:
        kind: as in `waybill.exporter.verification.Finding`.
        path: the file, relative to the root.
        was: the old path of a quarantined file, relative to the root; otherwise the same as `path`.
        what: a sentence about it.
        evidence: distinguishes it from others with the same kind and path.
    """

    kind: str
    path: str
    was: str
    what: str
    evidence: str

    @property
    def id(self) -> str:
        """See `finding_id`."""
        return finding_id(self.kind, self.path, self.evidence)


class LedgerState(msgspec.Struct):
    """The combined state of a ledger's entries.

    Attributes:
        head: SHA-256 of the last completed entry, in hex digits; empty if there is none.
        entries: how many entries are completed.
        heads: the SHA-256 of each of them.
        seals: by path, the seals of the file and of its predecessor, each None if there is none.
        changing: the hours of a started entry.
        doubts: the doubts, by id.
        accepted: the reason for each accepted finding, by its id.
        restored: the ids of findings whose rows were filed again.
        refiled: paths of archive files that were refiled, outside their journal's chain.
    """

    head: str = ""
    entries: int = 0
    heads: set[str] = msgspec.field(default_factory=set)
    seals: dict[str, tuple[str | None, str | None]] = {}
    changing: frozenset[Hour] = frozenset()
    doubts: dict[str, Doubt] = {}
    accepted: dict[str, str] = {}
    restored: set[str] = msgspec.field(default_factory=set)
    refiled: set[str] = msgspec.field(default_factory=set)
    _paths: defaultdict[Hour, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    _gone: defaultdict[str, list[str]] = msgspec.field(default_factory=lambda: defaultdict(list))

    def seal(self, path: str) -> str | None:
        """The seal of the file at a path; None if the ledger has none."""
        return self.seals.get(path, _UNKNOWN)[0]

    def files_of(self, hours: Iterable[Hour]) -> Iterator[str]:
        """The paths of the ledger's files in some hours."""
        for hour in hours:
            yield from (path for path in sorted(self._paths[hour]) if self.seal(path) is not None)

    def follow(self, entry: LedgerEntry, content: bytes) -> None:
        """Apply the next completed entry."""
        self.head = hash_of(content)
        self.heads.add(self.head)
        self.entries += 1
        if entry.whole:
            for path in [path for path in self.files_of(entry.hours) if path not in (entry.files or {})]:
                self._doubt_base(entry, path)
                self._put(path, (None, self.seal(path)))
        for path, seal in (entry.files or {}).items():
            self._follow_file(entry, path, seal)
        for path, kept in entry.aside.items():
            if kept in entry.reasons:
                self._doubt(
                    "damaged",
                    kept,
                    f"{path} was quarantined ({entry.reasons[kept]})",
                    was=path,
                )
        self.accepted.update(entry.accepted)
        self.restored.update(entry.restored)

    def _follow_file(self, entry: LedgerEntry, path: str, seal: str | None) -> None:
        before = self.seal(path)
        if path in entry.aside and not entry.refiles:
            before = None  # A file that replaces a quarantined one starts a new chain.
        elif not entry.before or self._doubt_base(entry, path):
            before = entry.found.get(path) or None
        if seal != before or not entry.whole:
            self._put(path, (seal, before))
            if entry.refiles and is_archived(path):
                self.refiled.add(path)
        if entry.refiles and seal is not None:
            # The archive has the missing entries again, one by one.
            for one in self._gone.pop(path, ()):
                self.doubts.pop(one, None)

    def doubt_entry(self, path: Path, what: str, content: bytes) -> None:
        """Note that an entry is wrong."""
        self._doubt("ledger", str(LEDGER), what, evidence=f"{path.name} {hash_of(content)}")

    def _put(self, path: str, seals: tuple[str | None, str | None]) -> None:
        self.seals[path] = seals
        if (hour := hour_in(path)) is not None:
            self._paths[hour].add(path)

    def _doubt_base(self, entry: LedgerEntry, path: str) -> bool:
        """Whether the file before a change differed from the ledger's."""
        known = self.seal(path)
        if path not in entry.found or entry.found[path] == known or entry.accepted:
            return False
        is_gone = entry.found[path] is None
        was = "was missing, although no age-off removed it," if is_gone else "was not the file in the ledger"
        what = f"{path} {was} when another file took its place"
        if is_gone:
            self._gone[path].append(self._doubt("removed", path, what, evidence=known or ""))
        else:
            self._doubt("unrecorded", path, what)
        return True

    def _doubt(
        self, kind: str, path: str, what: str, *, was: str | None = None, evidence: str | None = None
    ) -> str:
        one = Doubt(
            kind=kind,
            path=path,
            was=path if was is None else was,
            what=what,
            evidence=self.head if evidence is None else evidence,
        )
        self.doubts[one.id] = one
        return one.id


def read_ledger(root: Path) -> LedgerState | None:
    """Read a ledger from its first entry, if there is one; raises `OSError` if an entry cannot be read."""
    state, is_empty = LedgerState(), True
    for path, _, content in read_entries(root):
        is_empty = False
        try:
            entry = decode(content)
        except msgspec.DecodeError as error:
            what = f"{path} is not a ledger entry ({error}); restore it"
            state.doubt_entry(path, what, content)
            continue
        if entry.files is None:
            state.changing |= frozenset(entry.hours)
            continue
        if entry.before != state.head:
            what = f"{path} does not continue the previous entry; restore both from a copy"
            state.doubt_entry(path, what, content)
        state.follow(entry, content)
    return None if is_empty else state


def finding_id(kind: str, path: str, evidence: str) -> str:
    """A short name for a finding, the same each time it is found."""
    digest = hashlib.sha256(f"{kind}\0{path}\0{evidence}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:_ID_DIGITS]


def is_archived(path: str) -> bool:
    """Whether a path in a ledger is that of an archive file."""
    return path.startswith(f"{EVENTS}/")
