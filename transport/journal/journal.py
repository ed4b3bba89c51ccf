"""The journal: every accepted entry, in order, on disk before it is acknowledged.

One SQLite database per home, in WAL mode. Its invariants:

- `Journal.append` returns a sequence number only when the entry's transaction is committed and, unless the
  caller asked for less, fsynced. Without the fsync an entry survives the process, but not a power failure,
  which leaves the journal as it was after one of its commits.
- Sequence numbers grow and are never reused under one node; `Entry.received_ms` never decreases with them.
- The same bytes of the same kind are one entry for as long as the journal retains it undamaged.
- A cursor and the state that belongs to it change in one transaction.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import apsw
import msgspec

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import JournalError, JournalFullError, reason_of
from ..mounts import refuse_network_file_system
from ..permissions import make_private
from .begun import is_note
from .database import Database
from .entry import Entry, Kind
from .fingerprints import FileContent, first_with, note_contents
from .group_commit import GroupCommit, OnDone
from .nodes import Node, current_node, nodes_of, renew
from .poison import PoisonBox
from .recent import RecentEntries, size_of
from .rescue import exists
from .rows import (
    AFTER_GONE,
    GONE_UPTO,
    NEWEST_MS,
    Item,
    Row,
    StoredRow,
    codec,
    insert,
    is_as_accepted,
    row_of,
    stored_row,
    stored_rows,
    unpack,
)
from .to_read import ReadOnlyDatabase
from .watch import log_of

NEARLY_FULL: Final = 0.8
"""From this share of `Journal.max_bytes`, entries that every projection has are removed at any age."""

_SIZE_CHECK_EVERY_S: Final = 1.0
_RECENT_BYTES_MAX: Final = 16 * 2**20

_PUT_STATE: Final = """
INSERT INTO state (projection, key, value, seq) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, seq = excluded.seq
"""

_OUTDATED: Final = f"""
SELECT seq FROM entries
WHERE seq > {AFTER_GONE} AND seq <= min(?, (SELECT max(seq) FROM entries) - 1) AND received_ms < ?
ORDER BY seq LIMIT ?
"""  # noqa: S608 - a text of our own
_PRUNE: Final = f"DELETE FROM entries WHERE seq IN ({_OUTDATED})"  # noqa: S608 - a text of our own
_OLDEST: Final = f"(SELECT min(seq) FROM entries WHERE seq > {AFTER_GONE})"  # noqa: S608 - a text of our own
_PRUNE_STATE: Final = f"DELETE FROM state WHERE seq < {_OLDEST}"  # noqa: S608 - a text of our own
_FORGET_CONTENTS: Final = "DELETE FROM fingerprints WHERE created_ms < ?"
_SET_META: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"


# Only a mark has no digest, so the index of the digests lists them.
_MARKS: Final = "SELECT count(*) FROM entries WHERE digest IS NULL AND seq > ? AND seq <= ?"
_OLDEST_SENT: Final = """
SELECT received_ms FROM entries WHERE seq > ? AND seq <= ? AND digest IS NOT NULL ORDER BY seq LIMIT 1
"""


class Waiting(msgspec.Struct, frozen=True):
    """The entries that a projection has not processed.

    Attributes:
        entries: the number of entries.
        oldest_ms: when the first of them was accepted, epoch milliseconds; None if there is none.
    """

    entries: int
    oldest_ms: int | None

    @property
    def lag_s(self) -> float:
        """The age of the first of them in seconds; 0 if there is none."""
        return 0.0 if self.oldest_ms is None else max(SYSTEM_CLOCK.now_ms() - self.oldest_ms, 0) / 1_000


class _UnremovableError(Exception):
    """SQLite cannot remove a row, because it cannot find out which pages belong to it."""


class Journal:
    """A home's journal, created if there is none.

    Threads may share one, and each process opens its own. It may be used across a fork.

    Args:
        max_bytes: new entries are refused while the content is larger than this; it may be changed.
        vfs: the name of SQLite's file system; the fault tests pass their own.
        packs: whether large bodies are compressed, for which pyarrow is loaded.
        to_read: whether it is only read: it must exist, waits for no writer, and makes no file in the home.
        clock: the time that entries get, and what spaces out fsyncs and checks of the size.

    Attributes:
        node: the node that the journal's entries are filed under, as of this process's last commit, so also
            the node of the sequence numbers that this commit returned.

    Raises:
        JournalError: the home cannot hold a journal, or its file is no journal.
    """

    def __init__(
        self,
        home: Path,
        *,
        max_bytes: int = 10 * 2**30,
        vfs: str | None = None,
        packs: bool = False,
        to_read: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.home = home
        self.path = home / "journal.db"
        self.max_bytes = max_bytes
        self._packs = packs
        if packs:
            codec()  # loaded now, so that no request waits for it
        self.clock: Final = clock
        self._is_full = False
        self._at_least_ms = 0
        self._newest_ms: int | None = None
        """When the newest entry was accepted; None: another process may have added some."""
        self._size_checked_s = float("-inf")
        try:
            if not to_read:
                refuse_network_file_system(home)
                make_private(home)
        except OSError as error:
            raise JournalError(
                f"the home {home} cannot be used ({reason_of(error)}); correct that, or set "
                "another one with `home: DIR` in waybill.yaml"
            ) from None
        self._database = (
            cast("Database", ReadOnlyDatabase(self.path)) if to_read else Database(self.path, vfs, clock)
        )
        self.poison = PoisonBox(self._database)
        """The entries that projections cannot apply."""
        self._recent = RecentEntries(_RECENT_BYTES_MAX)
        self._commits = GroupCommit(self._database, self._rows_of, self._insert)
        # The parent commits other threads' entries, because those threads exist only there.
        self._database.on_fork = self._commits.reset
        self._database.on_change = self._find_last
        self._database.prepare()
        self.node = self.nodes()[-1].name

    @staticmethod
    def exists(home: Path) -> bool:
        """Whether this home has a journal; none is created.

        Raises a `JournalError` if the home had one, and it is missing.
        """
        return exists(home / "journal.db")

    # -- appending -------------------------------------------------------------------------------------------

    def append(
        self,
        kind: Kind,
        body: bytes,
        system_name: str = "",
        *,
        program: str | None = None,
        durable: bool = True,
    ) -> int:
        """Keep one entry; see `append_many`."""
        return self.append_many(((kind, body, system_name),), program=program, durable=durable)[0]

    def append_many(
        self, items: Iterable[Item], *, program: str | None = None, durable: bool = True
    ) -> list[int]:
        """Keep entries, all or none of them; `program` is the process that submits them.

        They are fsynced on return if `durable` is set; see `Database.write` for what else makes them durable.
        Returns the sequence number of each; for a repeat, that of the first entry with the same bytes.

        Raises:
            JournalFullError: the disk is full, or the content has reached `max_bytes`; nothing was kept.
            JournalError: the disk failed; nothing was kept.
        """
        return self._commits.keep(self._rows_of(items, program), durable=durable)

    def submit(self, items: Sequence[Item], on_done: OnDone, *, durable: bool = True) -> None:
        """Keep entries without waiting for the disk, for example from an event loop; see `append_many`.

        `on_done` is called in the committing thread with the sequence numbers or the error; it must neither
        raise nor take long. `close` commits all remaining entries and calls it for them.
        """
        self._commits.submit(items, on_done, durable=durable)

    @property
    def committing_s(self) -> float:
        """How long submitted entries have been waiting for the current commit; 0 if none are waiting."""
        return self._commits.committing_s

    def mark(self, body: Literal[b"settle", b"flush"], *, at_ms: int = 0) -> int:
        """Append a mark and return its sequence number; marks are never refused for size.

        It counts as received at `at_ms` (epoch milliseconds) or later, whatever the clock says.
        """
        self._at_least_ms = max(self._at_least_ms, at_ms)
        return self._commits.keep([Row(Kind.MARK, "", None, body)])[0]

    def _rows_of(self, items: Iterable[Item], program: str | None = None) -> list[Row]:
        return [row_of(kind, system, body, pack=self._packs, program=program) for kind, body, system in items]

    def _find_last(self, writer: apsw.Connection) -> None:
        self.node = current_node(writer)
        self._newest_ms = None

    def _insert(self, writer: apsw.Connection, rows: list[Row]) -> list[int]:
        now_s = self.clock.monotonic_s()
        if self._is_full or now_s - self._size_checked_s >= _SIZE_CHECK_EVERY_S:
            self._size_checked_s = now_s
            self._is_full = _content_bytes(writer) >= self.max_bytes
        marks = any(row.kind == Kind.MARK for row in rows)
        if self._is_full and not (marks and len(rows) == 1 and not is_note(rows[0].body)):
            raise JournalFullError(
                f"the journal at {self.path} has reached journal_max_bytes = {self.max_bytes}; "
                "let its projections catch up (see `waybill status`), because entries that all of them have "
                "make room; if it has no projection, turn one on, or raise the limit: "
                f"`waybill settings apply --home {shlex.quote(str(self.home))}` with --archive-enabled, "
                "--provenance-enabled, --marquez-url URL or --journal-max-bytes SIZE"
            )
        if self._newest_ms is None:
            self._newest_ms = cast("int | None", writer.execute(NEWEST_MS).get) or 0
        self._newest_ms = max(self.clock.now_ms(), self._at_least_ms, self._newest_ms)
        seqs = insert(writer, rows, self._newest_ms, marks=marks)
        note_contents(
            writer, [(seq, one) for seq, row in zip(seqs, rows, strict=True) for one in row.contents]
        )
        return seqs

    # -- reading ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read all within as of one moment; only a journal that was opened to be read can."""
        with cast("ReadOnlyDatabase", self._database).snapshot():
            yield

    def read(
        self, after: int, *, limit: int = 1000, max_bytes: int = 64 * 2**20, body_max_bytes: int | None = None
    ) -> list[Entry]:
        """The entries after `after`, in order: as many as the limits allow, but at least one if there is any.

        An entry that cannot be read is returned without its body, and does not hide others. Entries with a
        body larger than `body_max_bytes` are left out.
        """
        entries: list[Entry] = []
        size_bytes = 0
        with (
            self._database.reading() as reader,
            contextlib.closing(stored_rows(reader, after, limit)) as rows,
        ):
            for row in rows:
                body_bytes = row.unpacked_bytes or len(row.body or b"")
                if body_max_bytes is not None and body_bytes > body_max_bytes:
                    continue
                size_bytes += body_bytes
                if entries and size_bytes > max_bytes:
                    break
                entries.append(_entry_of(row))
        return entries

    def follow(self, after: int, *, limit: int = 1000, max_bytes: int = 64 * 2**20) -> list[Entry]:
        """The entries after `after`, like `read`, for one of several readers that follow the journal.

        They share recent entries, so that each is read and decoded once.
        """
        entries = self._recent.after(after, limit, max_bytes)
        if len(entries) < limit:
            upto, room_bytes = entries[-1].seq if entries else after, max_bytes - size_of(entries)
            more = self.read(upto, limit=limit - len(entries), max_bytes=room_bytes)
            if not entries or size_of(more) <= room_bytes:
                self._recent.add(more)
                entries += more
        return entries

    def feed(
        self, projection: str, after: int, *, limit: int = 1000, max_bytes: int = 64 * 2**20
    ) -> list[Entry]:
        """The entries after `after`, like `follow`, for a projection to apply.

        A damaged entry is set aside as poison of this projection. A mark ``poison`` replaces each entry that
        was set aside. An entry that is tried again replaces its mark.
        """
        entries = self.follow(after, limit=limit, max_bytes=max_bytes)
        for entry in entries:
            if entry.damage is not None:
                self.poison.set_aside(projection, entry.seq, entry.damage)
        return self.poison.replaced(projection, entries)

    def waiting(self, cursor: int, upto: int | None = None) -> Waiting:
        """The entries that a projection has not processed: those after its cursor, up to `upto` if given.

        Marks do not count, because nobody sent them.
        """
        last_seq = self.last_seq() if upto is None else upto
        with self._database.reading() as reader:
            marks = cast("int", reader.execute(_MARKS, (cursor, last_seq)).get)
            oldest_ms = cast("int | None", reader.execute(_OLDEST_SENT, (cursor, last_seq)).get)
        return Waiting(max(last_seq - cursor - marks, 0), oldest_ms)

    def last_seq(self) -> int:
        """The newest entry's sequence number; 0 for an empty journal."""
        return int(self._value("SELECT coalesce(max(seq), 0) FROM entries"))

    def last_mark(self) -> int:
        """The newest mark's sequence number; 0 without one."""
        return int(self._value("SELECT coalesce(max(seq), 0) FROM entries WHERE digest IS NULL"))

    def first(self) -> Entry | None:
        """The oldest entry that is not pruned."""
        return next(iter(self.read(0, limit=1)), None)

    def size_bytes(self) -> int:
        """The size of the journal's content, without the free space in its file."""
        with self._database.reading() as reader:
            return _content_bytes(reader)

    @property
    def filled(self) -> float:
        """The content's share of `max_bytes`; from 1, nothing more is kept."""
        return self.size_bytes() / self.max_bytes

    def _value(self, query: str, *bindings: str) -> Any:  # noqa: ANN401 - the first column of the first row
        with self._database.reading() as reader:
            return reader.execute(query, bindings).get

    def _values(self, query: str, *bindings: str) -> dict[str, Any]:
        """The second column of each row by the first."""
        with self._database.reading() as reader:
            return dict(cast("list[tuple[str, Any]]", reader.execute(query, bindings).fetchall()))

    # -- projections -----------------------------------------------------------------------------------------

    def cursor(self, projection: str) -> int:
        """The last entry that a projection has made durable; 0 before its first."""
        return int(self._value("SELECT coalesce(max(seq), 0) FROM cursors WHERE projection = ?", projection))

    def cursors(self) -> dict[str, int]:
        """The cursor of every projection that ever moved its cursor."""
        return self._values("SELECT projection, seq FROM cursors")

    def state(self, projection: str, prefix: str = "") -> dict[str, bytes]:
        """The values that a projection keeps under the keys that begin with `prefix`."""
        query = "SELECT key, value FROM state WHERE projection = ? AND key >= ? AND key < ?"
        return self._values(query, projection, prefix, prefix + "\U0010ffff")

    def state_get(self, projection: str, key: str) -> bytes | None:
        """The value that a projection keeps under one key."""
        query = "SELECT value FROM state WHERE projection = ? AND key = ?"
        return cast("bytes | None", self._value(query, projection, key))

    def state_of(self, projection: str, keys: Collection[str]) -> dict[str, bytes]:
        """The values that a projection keeps under some keys, without the keys that have none."""
        if not keys:
            return {}
        query = (
            "SELECT key, value FROM state WHERE projection = ? AND key IN (SELECT value FROM json_each(?))"
        )
        return self._values(query, projection, msgspec.json.encode(list(keys)).decode())

    def commit(
        self,
        projection: str,
        *,
        cursor: int | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Iterable[str] = (),
        seqs: Mapping[str, int] | None = None,
        durable: bool = True,
    ) -> None:
        """Move a projection's cursor and change its state in one transaction.

        Rows are written and deleted by key. `seqs` ties rows, also by key, to entries: `prune` removes such a
        row with its entry. Other rows stay until they are deleted.

        The change is fsynced on return if `durable` is set. Otherwise it survives the death of the process,
        and is fsynced with the next durable change, or by `sync`. That matters because emitters wait for
        every fsync.

        Raises:
            JournalError: the disk failed or is full; nothing changed.
        """

        def change(writer: apsw.Connection) -> None:
            keys = [(projection, key) for key in delete]
            writer.executemany("DELETE FROM state WHERE projection = ? AND key = ?", keys)
            tied = seqs or {}
            rows = [(projection, key, value, tied.get(key)) for key, value in (put or {}).items()]
            writer.executemany(_PUT_STATE, rows)
            if cursor is not None:
                statement = "INSERT INTO cursors VALUES (?, ?) ON CONFLICT DO UPDATE SET seq = excluded.seq"
                writer.execute(statement, (projection, cursor))

        self._database.write(change, durable=durable)

    @property
    def has_unsynced(self) -> bool:
        """Whether this process has kept or changed something that may not be durable yet."""
        return self._database.has_unsynced

    def sync(self, after_s: float = 0.0) -> float | None:
        """Make durable what `append` and `commit` did not fsync; see `Database.sync`."""
        return self._database.sync(after_s)

    def sync_all(self) -> None:
        """Make durable what any process has kept or changed, before something outside depends on it."""
        self._database.sync_all()

    # -- contents --------------------------------------------------------------------------------------------

    def first_with(self, fingerprint: str) -> FileContent | None:
        """The first file with this content, also if the entry that told it is pruned."""
        with self._database.reading() as reader:
            return first_with(reader, fingerprint)

    def forget_contents(self, before_ms: int) -> None:
        """Forget the contents of files that began before an instant, in epoch milliseconds."""
        self._database.write(lambda writer: writer.execute(_FORGET_CONTENTS, (before_ms,)), durable=False)

    # -- housekeeping ----------------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """One of the home's own notes, for example the settings that its runner uses."""
        return cast("str | None", self._value("SELECT value FROM meta WHERE key = ?", key))

    def set_meta(self, key: str, value: str) -> None:
        """Write one of the home's own notes."""
        self._database.write(lambda writer: writer.execute(_SET_META, (key, value)))

    def nodes(self) -> tuple[Node, ...]:
        """Every node that the journal ever had, in order; the last one is the current one."""
        with self._database.reading() as reader:
            return nodes_of(reader)

    def renew_node(
        self,
        expected: str,
        why: str,
        *,
        lost: tuple[int, int] | None = None,
        cursors: Mapping[str, int] | None = None,
    ) -> Node | None:
        """Give the journal a new node in place of the `expected` one, and move these cursors back.

        For `why` and `lost` see `Node`. Returns None if the node is no longer the `expected` one.
        """
        renewed = self._database.write(lambda writer: renew(writer, expected, why, lost, cursors or {}))
        if renewed:
            self.node = renewed.name
        return renewed

    def prune(self, upto_seq: int, received_before_ms: int, *, limit: int = 10_000) -> int:
        """Remove old entries, oldest first, and the state that is tied to them; return how many entries.

        The newest entry always stays.

        Args:
            upto_seq: the last entry that may be removed, because every enabled projection has it.
            received_before_ms: only entries accepted before this instant are removed.
            limit: the most entries that one call removes, so that writers do not wait long.
        """
        self._recent.clear()
        outdated = upto_seq, received_before_ms, limit
        try:
            return self._database.write(lambda writer: self._remove_all(writer, outdated))
        except _UnremovableError:
            with self._database.reading() as reader:
                seqs = [cast("int", seq) for (seq,) in reader.execute(_OUTDATED, outdated).fetchall()]
                removable = [seq for seq in seqs if stored_row(reader, seq).body is not None]
            return self._database.write(lambda writer: self._let_go(writer, seqs, removable))

    def _remove_all(self, writer: apsw.Connection, outdated: tuple[int, int, int]) -> int:
        try:
            writer.execute(_PRUNE, outdated)
        except apsw.CorruptError:
            raise _UnremovableError from None
        removed = writer.changes()
        self._forget_outdated(writer)
        return removed

    def _let_go(self, writer: apsw.Connection, seqs: Sequence[int], removable: Iterable[int]) -> int:
        """Remove those of these entries that SQLite can remove, and skip the others from now on."""
        writer.executemany("DELETE FROM entries WHERE seq = ?", ((seq,) for seq in removable))
        writer.execute(_SET_META, (GONE_UPTO, str(seqs[-1])))
        self._forget_outdated(writer)
        return len(seqs)

    def _forget_outdated(self, writer: apsw.Connection) -> None:
        """Forget everything that belongs to removed entries."""
        writer.execute(_PRUNE_STATE)
        self.poison.forget_applied(writer)

    def checkpoint(self) -> None:
        """Move the content of the WAL into the database, so that the WAL starts again."""
        self._database.checkpoint()

    def wal_bytes(self) -> int:
        """The size of the WAL file."""
        with contextlib.suppress(OSError):
            return log_of(self.path).stat().st_size
        return 0

    def close(self) -> None:
        """Commit all submitted entries, and close the database. A closed journal may be used again."""
        self._commits.close()
        self._database.close()


def _entry_of(row: StoredRow) -> Entry:
    kind, name, body, damage, program = Kind.MARK, "", b"", None, None
    try:
        kind = Kind(row.kind)
        name = row.system_name.decode()
        program = None if row.program is None else row.program.decode()
        body = unpack(row.body, row.unpacked_bytes)
        if not is_as_accepted(kind, body, row.digest):
            damage = "its bytes are not those that were accepted; check the disk"
    except ValueError as error:
        damage = f"its bytes cannot be read ({error}); check the disk"
    return Entry(row.seq, row.received_ms, kind, name, b"" if damage else body, damage, program)


def _content_bytes(connection: apsw.Connection) -> int:
    pages = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
    return pages * int(connection.pragma("page_size"))
