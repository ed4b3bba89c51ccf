"""The marker of a root, and the claims of the homes that file into it.

    waybill-root.json                   the marker: the root's random id
    nodes/<node>/<projection>.json      the claim: every number that a projection has begun to publish
    <folder>/waybill-folder.txt         shows that a folder a projection files into has not been emptied

A home remembers its root by that id. It makes a marker only while it remembers no root. So it notices an
empty folder where the root is not mounted. It also notices an older copy of the root, whose claims end before
the home's cursors, and a copy that has the claims but not the files, because its folders lack their marks.
Nothing is written into any of these, and the journal removes no entries until the root is right again. Which
device it is on does not matter, because a device may have another number after a restart.

A claim is durable before the files of its range. So a root knows every number that was ever used there, and
a journal that is about to use one again is noticed: it has lost its log, was restored from a copy, or is a
copy. It then gets another node, see `waybill.transport.journal.nodes`.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from .clock import SYSTEM_CLOCK
from .errors import RootError, reason_of
from .files import Files, publish, publish_alone, sweep
from .locks import locked

if TYPE_CHECKING:
    from .journal import Journal

log = logging.getLogger("waybill.transport")

MARKER: Final = "waybill-root.json"
CLAIMS: Final = "nodes"
FOLDER_MARK: Final = "waybill-folder.txt"

_FORMAT: Final = 1
_WAY_OUT: Final = "mount it, or run `waybill root adopt`"
_META: Final = "root"
_RANGE: Final = "range"
_FILED_AS: Final = "filed_as"
_SUFFIX: Final = ".json"
_LOCK: Final = ".lock"

_T = TypeVar("_T")


class Marker(msgspec.Struct, frozen=True):
    """A root's own id, when it became a root, in epoch milliseconds, and the format of its small files."""

    id: str
    created_ms: int
    format: int = _FORMAT


class JournalFile(msgspec.Struct, frozen=True):
    """Identifies a journal's file, to distinguish it from a copy; the same wherever it is mounted."""

    inode: int
    file_system: int

    @classmethod
    def of(cls, journal: Journal) -> JournalFile:
        """The identity of an open journal's file."""
        return cls(journal.path.stat().st_ino, os.statvfs(journal.path).f_fsid)


class Claim(msgspec.Struct, frozen=True):
    """Every sequence number that a projection has begun to publish under a node.

    Attributes:
        first: the first number of all.
        begun: the first number of the last range.
        last: the last number of all.
        home: the journal's file.
        earlier: the nodes that the journal had before this one.
        folder: the folder of the root that holds the projection's files; it exists, with its mark, since the
            claim was made.
    """

    first: int
    begun: int
    last: int
    home: JournalFile
    earlier: tuple[str, ...]
    folder: str


class KnownRoot(msgspec.Struct, frozen=True):
    """A home's memory of its root: the id, and the folder when the root was last right."""

    id: str
    path: str


def read_marker(root: Path) -> Marker | None:
    """A folder's marker; None where it has none. Raises `RootError` if it is damaged or of another format."""
    return _of_our_format(root, _read(root / MARKER, _MARKER_DECODER))


def _of_our_format(root: Path, marker: Marker | None) -> Marker | None:
    if marker is not None and marker.format != _FORMAT:
        raise RootError(
            f"{root} has format {marker.format}, and this Waybill reads format {_FORMAT}; "
            "use the Waybill that wrote it, or another root"
        )
    return marker


def read_claims(root: Path, node: str) -> dict[str, Claim]:
    """The claims under a node, by projection. Raises `RootError` if a claim is damaged."""
    found: dict[str, Claim] = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted((root / CLAIMS / node).iterdir()):
            if path.suffix == _SUFFIX and (claim := _read(path, _CLAIM_DECODER)) is not None:
                found[path.stem] = claim
    return found


def known_root(journal: Journal) -> KnownRoot | None:
    """The root that a home remembers; None before it has filed anything."""
    stored = journal.meta(_META)
    return None if stored is None else _KNOWN_DECODER.decode(stored)


def where_filed(known: KnownRoot | None) -> Path | None:
    """The folder that a home last filed into; None if it is no longer the same root."""
    if known is None:
        return None
    with suppress(RootError, OSError):
        marker = read_marker(Path(known.path))
        if marker is not None and marker.id == known.id:
            return Path(known.path)
    return None


def check_root(journal: Journal, root: Path) -> None:
    """Check that a folder is the root that the home files into, and still has everything the home filed.

    A home that remembers no root accepts any.

    Raises:
        RootError: it is not, or it has lost something.
        OSError: it cannot be read.
    """
    known = known_root(journal)
    if known is None:
        return
    marker = read_marker(root)
    if marker is None or marker.id != known.id:
        fault = f"it has no {MARKER}" if marker is None else "it is another one"
        says = f"{root} is not the root that {journal.home} files into ({fault}); "
        if (own := where_filed(known)) is None:
            raise RootError(f"{says}{_WAY_OUT}")
        command = shlex.join(
            ("waybill", "settings", "apply", "--home", str(journal.home), "--root", str(own))
        )
        raise RootError(f"{says}the root is {own}; to go back to it: `{command}`")
    # Read the cursors first: a live runner continues meanwhile, and claims a range before it moves a cursor.
    for projection, cursor in journal.cursors().items():
        node = filed_as(journal, projection)
        if node is None or not cursor:
            continue
        claim = _read(_claim_path(root, node, projection), _CLAIM_DECODER)
        if claim is None or claim.last < cursor:
            has = "nothing" if claim is None else f"entries up to {claim.last}"
            raise RootError(
                f"{root} is an older copy of the root that {journal.home} files into (the {projection} has "
                f"{has} of {node}, and filed up to {cursor}); {_WAY_OUT}"
            )
        if (lost := _lost(root, claim)) is not None:
            raise RootError(
                f"{root} has lost {lost}, into which the {projection} has filed; put it back, or run "
                "`waybill root adopt`"
            )


def filed_as(journal: Journal, projection: str) -> str | None:
    """The node under which a projection last filed entries; None if it has filed nothing."""
    stored = journal.state_get(projection, _FILED_AS)
    return None if stored is None else stored.decode()


def begun_range(journal: Journal, projection: str) -> tuple[int, int] | None:
    """The range that a projection has begun to file and is not done with; None if there is none."""
    stored = journal.state_get(projection, _RANGE)
    return None if stored is None else _RANGE_DECODER.decode(stored)


def renew_used_node(journal: Journal, root: Path) -> None:
    """Give a journal another node if the next numbers of its node are already used in this root, or may be.

    Call this before anything is accepted. If the root cannot be read, the projections deal with that.
    """
    try:
        node = journal.nodes()[-1].name
        claims = read_claims(root, node).values()
        last_seq, home = journal.last_seq(), JournalFile.of(journal)
    except (OSError, RootError) as error:
        log.warning("the claims in %s cannot be read: %s", root, reason_of(error))
        return
    used = max((claim.last for claim in claims), default=0)
    if used > last_seq:
        _renew(journal, node, _behind(last_seq, used), (last_seq + 1, used))
    elif any(claim.home != home for claim in claims):
        _renew(journal, node, _COPIED)


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """The consequences for a home of continuing with the folder that is now at its root's path.

    Attributes:
        cursors: where each projection that files there continues.
        entries: how many entries of the journal are filed again.
        missing: by projection, the first and last number of the entries that neither root nor journal has.
    """

    cursors: dict[str, int]
    entries: int
    missing: dict[str, tuple[int, int]]


def plan_adoption(journal: Journal, root: Path, projections: Collection[str]) -> Adoption:
    """Find out what adopting a folder would mean for these projections; nothing changes.

    A projection continues before the last range that the root knows, since some of its files may be missing.
    """
    oldest, last_seq = journal.first(), journal.last_seq()
    first_seq = last_seq + 1 if oldest is None else oldest.seq
    before = {name: seq for name, seq in journal.cursors().items() if name in projections}
    cursors = {name: _reached(journal, root, name, seq) for name, seq in before.items()}
    moved = {name: seq for name, seq in cursors.items() if seq < before[name]}
    return Adoption(
        cursors=cursors,
        entries=max(last_seq - max(min(moved.values(), default=last_seq), first_seq - 1), 0),
        missing={name: (seq + 1, first_seq - 1) for name, seq in moved.items() if seq + 1 < first_seq},
    )


def adopt_root(journal: Journal, root: Path, adoption: Adoption) -> None:
    """Continue with a folder as `plan_adoption` says; the caller must hold the runner's lease.

    Entries that are filed again are filed under another node.
    """
    marker = _make_marker(Files(), root)
    before = journal.cursors()
    if any(seq < before[name] for name, seq in adoption.cursors.items()):
        for projection in adoption.cursors:
            journal.commit(projection, delete=[_RANGE])
        # An emitter that has just been opened may renew the node first.
        while not _renew(journal, journal.nodes()[-1].name, _ADOPTED, cursors=adoption.cursors):
            pass
    _remember(journal, root, marker.id)


def _reached(journal: Journal, root: Path, projection: str, cursor: int) -> int:
    node = filed_as(journal, projection)
    claim = None
    if node is not None:
        claim = _read_whole(_claim_path(root, node, projection), _CLAIM_DECODER)
    if claim is None or _lost(root, claim) is not None:
        return 0
    return cursor if claim.last >= cursor else min(claim.begun - 1, cursor)


class Filing:
    """Files a projection's work into a folder of a root: claims each range before its files are published."""

    def __init__(self, journal: Journal, root: Path, projection: str, folder: str, files: Files) -> None:
        self._journal = journal
        self._root = root
        self._projection = projection
        self._folder = folder
        self._files = files

    def open(self) -> None:
        """Begin, or begin again: check that the root is the right one. The first root that a home sees is.

        Raises:
            RootError: it is not.
        """
        if (known := known_root(self._journal)) is None:
            read_marker(self._root)  # a damaged one is not replaced here
            marker = _make_marker(self._files, self._root)
            _remember(self._journal, self._root, marker.id)
        self.check()
        if known is not None and known.path != str(self._root):
            _remember(self._journal, self._root, known.id)

    def check(self) -> None:
        """Raise a `RootError` unless the root is the right one; if it is not, write nothing there."""
        check_root(self._journal, self._root)

    def begun(self) -> tuple[int, int] | None:
        """The range that was begun but not done, or None; the same files must be made of it again."""
        return begun_range(self._journal, self._projection)

    def begin(self, first: int, last: int) -> str:
        """Begin a range, or begin the unfinished one again, and return the node to file it under.

        Raises:
            RootError: the root is not the right one.
            OSError: the claim cannot be written.
        """
        begun = self.begun()
        allowed = {self._journal.cursor(self._projection)}
        # When entries are isolated, a range is shorter than the one that failed.
        if begun is not None and begun[0] == first and last <= begun[1]:
            allowed.add(begun[1])
        if begun != (first, last):
            self._journal.commit(self._projection, put={_RANGE: msgspec.msgpack.encode((first, last))})
        while (node := self._claim(first, last, allowed)) is None:
            pass
        return node

    def done(
        self, node: str, last: int, *, put: Mapping[str, bytes] | None = None, delete: Iterable[str] = ()
    ) -> None:
        """Move the cursor past the range, whose files are durable, and change the projection's state.

        Raises:
            RootError: the root has disappeared meanwhile, and the files with it.
        """
        self.check()
        put = {**(put or {}), _FILED_AS: node.encode()}
        self._journal.commit(self._projection, cursor=last, put=put, delete=[*delete, _RANGE])

    def give_way(self, node: str, path: Path) -> None:
        """Continue under another node, because somebody else has published a file with the same name."""
        _renew(self._journal, node, f"{path} has other bytes than its own")

    def _claim(self, first: int, last: int, allowed: set[int]) -> str | None:
        """Claim a range under the current node and return it; None if the node had to be renewed."""
        self.check()
        *earlier, node = (one.name for one in self._journal.nodes())
        home = JournalFile.of(self._journal)
        path = _claim_path(self._root, node, self._projection)
        self._files.make_folder(path.parent)
        self._files.make_folder(self._root / self._folder)
        # Under the lock, nobody else claims between the check and the claim, not even a copy of this home.
        with locked(path.parent / _LOCK):
            sweep(self._files, path.parent)
            claim = _read(path, _CLAIM_DECODER)
            if claim is not None and claim.last not in allowed:
                cursor = min(allowed)
                _renew(self._journal, node, _behind(cursor, claim.last), (cursor + 1, claim.last))
                return None
            if claim is not None and claim.home != home:
                _renew(self._journal, node, _COPIED)
                return None
            least = first if claim is None else min(claim.first, first)
            claimed = Claim(least, first, last, home, tuple(earlier), self._folder)
            if claim is None:
                with locked(self._root / CLAIMS / _LOCK):
                    publish_alone(self._files, self._root / self._folder / FOLDER_MARK, _FOLDER_TEXT)
            if claimed != claim:
                publish(self._files, path, _ENCODER.encode(claimed))
            else:  # whoever published it may have died before its name was durable
                self._files.fsync_folder(path.parent)
        return node


def _lost(root: Path, claim: Claim) -> str | None:
    """The loss in the folder that a claim names; None if the folder is there and was not emptied."""
    folder = root / claim.folder
    if not folder.is_dir():
        return f"the folder {claim.folder}"
    if not (folder / FOLDER_MARK).is_file():
        return f"what was in the folder {claim.folder}"
    return None


def _claim_path(root: Path, node: str, projection: str) -> Path:
    return root / CLAIMS / node / f"{projection}{_SUFFIX}"


def _make_marker(files: Files, root: Path) -> Marker:
    """Make a folder a root, unless another home has just done so; a damaged marker is replaced."""
    path = root / MARKER
    files.make_folder(root / CLAIMS)
    with locked(root / CLAIMS / _LOCK):
        marker = _of_our_format(root, _read_whole(path, _MARKER_DECODER))
        if marker is None:
            marker = Marker(secrets.token_hex(8), SYSTEM_CLOCK.now_ms())
            publish_alone(files, path, _ENCODER.encode(marker))
        else:  # as for a claim
            files.fsync_folder(root)
    return marker


def _remember(journal: Journal, root: Path, root_id: str) -> None:
    journal.set_meta(_META, _ENCODER.encode(KnownRoot(root_id, str(root))).decode())


def _renew(
    journal: Journal,
    node: str,
    why: str,
    lost: tuple[int, int] | None = None,
    cursors: Mapping[str, int] | None = None,
) -> bool:
    renewed = journal.renew_node(node, why, lost=lost, cursors=cursors)
    if renewed is not None:
        log.warning("%s is known as %s instead of %s from now on: %s", journal.path, renewed.name, node, why)
    return renewed is not None


def _behind(last: int, used: int) -> str:
    return f"it was at entry {last}, and the root has entries up to {used}"


def _read(path: Path, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    try:
        return decoder.decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise RootError(
            f"{path} is damaged ({error}); restore it from a copy, or run `waybill root adopt`"
        ) from None


def _read_whole(path: Path, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    """The decoded file; None if it is missing, or damaged and so must be replaced."""
    with suppress(RootError):
        return _read(path, decoder)
    return None


_ADOPTED: Final = "its root was adopted"
_COPIED: Final = "its file is a copy, or was moved to another disk"
_FOLDER_TEXT: Final = b"Leave this file here: without it, Waybill takes this folder for emptied.\n"
_ENCODER: Final = msgspec.json.Encoder()
_MARKER_DECODER: Final = msgspec.json.Decoder(Marker)
_CLAIM_DECODER: Final = msgspec.json.Decoder(Claim)
_KNOWN_DECODER: Final = msgspec.json.Decoder(KnownRoot)
_RANGE_DECODER: Final = msgspec.msgpack.Decoder(tuple[int, int])
