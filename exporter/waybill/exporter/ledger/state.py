"""What the entries of a ledger say together, and what they leave in doubt.

A doubt is a finding that stays one whatever happens to the files afterwards, until somebody accepts it: a
file that was gone or was not the ledger's when something else took its place, or one that was quarantined.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from waybill.exporter.ledger.entries import read_entries
from waybill.exporter.ledger.entry import LedgerEntry, decode, hash_of
from waybill.exporter.names import EVENTS, LEDGER, Hour, hour_in

_ID_DIGITS: Final = 12
_UNKNOWN: Final = (None, None)


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry leaves in doubt.

    Attributes:
        kind: as `waybill.exporter.verification.Finding` has it.
        path: the file, relative to the root.
        was: where the rows of a quarantined file were, relative to the root; else as `path`.
        what: a sentence about it.
        evidence: what distinguishes it from others of the same kind and path.
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
    """What the entries of a ledger say together.

    Attributes:
        head: SHA-256 of the last completed entry, in hex digits; empty where there is none.
        entries: how many entries are completed.
        heads: the SHA-256 of each of them.
        seals: by path, the seals of the file there and of its predecessor, each None where there is none.
        changing: hours that an entry was begun for.
        doubts: by id, what is in doubt.
        accepted: by id of each finding that somebody accepted, the reason.
        restored: the ids of findings whose rows were filed again.
        refiled: paths of archive files that were filed again, outside of their journal's chain.
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
        """The seal of the file at a path; None where the ledger has none."""
        return self.seals.get(path, _UNKNOWN)[0]

    def files_of(self, hours: Iterable[Hour]) -> Iterator[str]:
        """The paths of the files that the ledger has in some hours."""
        for hour in hours:
            yield from (path for path in sorted(self._paths[hour]) if self.seal(path) is not None)

    def follow(self, entry: LedgerEntry, content: bytes) -> None:
        """Take in the next completed entry."""
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
                    f"{path} was set aside ({entry.reasons[kept]}); run `waybill repair`",
                    was=path,
                )
        self.accepted.update(entry.accepted)
        self.restored.update(entry.restored)

    def _follow_file(self, entry: LedgerEntry, path: str, seal: str | None) -> None:
        before = self.seal(path)
        if path in entry.aside and not entry.refiles:
            before = None  # What replaces a quarantined file begins a new chain.
        elif not entry.before or self._doubt_base(entry, path):
            before = entry.found.get(path) or None
        if seal != before or not entry.whole:
            self._put(path, (seal, before))
            if entry.refiles and is_archived(path):
                self.refiled.add(path)
        if entry.refiles and seal is not None:
            # The archive has again what it lacked, entry by entry.
            for one in self._gone.pop(path, ()):
                self.doubts.pop(one, None)

    def doubt_entry(self, path: Path, what: str, content: bytes) -> None:
        """Note that an entry is not what it should be."""
        self._doubt("ledger", str(LEDGER), what, evidence=f"{path.name} {hash_of(content)}")

    def _put(self, path: str, seals: tuple[str | None, str | None]) -> None:
        self.seals[path] = seals
        if (hour := hour_in(path)) is not None:
            self._paths[hour].add(path)

    def _doubt_base(self, entry: LedgerEntry, path: str) -> bool:
        """Whether the file that was there before a change is not the one that the ledger has."""
        known = self.seal(path)
        if path not in entry.found or entry.found[path] == known or entry.accepted:
            return False
        is_gone = entry.found[path] is None
        was = "was gone, though no age-off took it," if is_gone else "was not the ledger's"
        what = f"{path} {was} when something else took its place; run `waybill repair`"
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
    """Follow a ledger from its first entry, if there is one; raises `OSError` if an entry cannot be read."""
    state, is_empty = LedgerState(), True
    for path, _, content in read_entries(root):
        is_empty = False
        try:
            entry = decode(content)
        except msgspec.DecodeError as error:
            what = f"{path} is no entry of a ledger ({error}); restore it"
            state.doubt_entry(path, what, content)
            continue
        if entry.files is None:
            state.changing |= frozenset(entry.hours)
            continue
        if entry.before != state.head:
            what = f"{path} does not follow the entry before it; restore both from a copy"
            state.doubt_entry(path, what, content)
        state.follow(entry, content)
    return None if is_empty else state


def finding_id(kind: str, path: str, evidence: str) -> str:
    """A short name for a finding, the same whenever the same is found."""
    digest = hashlib.sha256(f"{kind}\0{path}\0{evidence}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:_ID_DIGITS]


def is_archived(path: str) -> bool:
    """Whether a path in a ledger is of a file of the archive."""
    return path.startswith(f"{EVENTS}/")
