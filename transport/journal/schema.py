"""The journal's tables, as migration steps: step N takes a journal from version N-1 to version N.

A released step never changes; a change of the schema is a new step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import JournalError, JournalVersionError

if TYPE_CHECKING:
    import apsw

APPLICATION_ID: Final = 0x57_42_49_4C
"""``WBIL`` in SQLite's header, which identifies a journal, also to the command ``file``."""

OLD_DIGESTS_UPTO: Final = "old_digests_upto"
"""The note of the last entry that version 3 kept, in a journal that it created; removed with that entry."""

STEPS: Final[tuple[str, ...]] = (
    # The digest of a mark is NULL: marks are never repeats of each other. Sequence numbers are never used
    # again because the newest entry is never pruned.
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE entries (
        seq INTEGER PRIMARY KEY,
        received_ms INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        system_name TEXT NOT NULL,
        digest BLOB UNIQUE,
        body BLOB NOT NULL
    ) STRICT;
    """,
    """
    CREATE TABLE cursors (projection TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE state (
        projection TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (projection, key)
    ) STRICT, WITHOUT ROWID;
    """,
    # Where it is set, the body is LZ4 (one block) and had this size.
    "ALTER TABLE entries ADD COLUMN unpacked_bytes INTEGER;",
    # Digests begin with a moment from here on; those that do not stay until their entries go.
    """
    INSERT INTO meta SELECT 'old_digests_upto', CAST(max(seq) AS TEXT) FROM entries HAVING max(seq) > 0;
    """,
    # State that is tied to an entry goes when the entry is pruned. Deliveries named it in the value (the last
    # event of a run, after a tilde while the run is open) or in the key, as <share>:<number>: the number of a
    # page of 4096 coalesced entries, or the entry that stands for a summary.
    """
    ALTER TABLE state ADD COLUMN seq INTEGER;
    CREATE INDEX state_seq ON state (seq) WHERE seq IS NOT NULL;
    UPDATE state SET seq = CASE
        WHEN key GLOB 'end:*' THEN CAST(ltrim(CAST(value AS TEXT), '~') AS INTEGER)
        WHEN key GLOB 'coalesced:*'
            THEN CAST(substr(key, 11 + instr(substr(key, 11), ':')) AS INTEGER) * 4096 + 4095
        ELSE CAST(substr(key, 8 + instr(substr(key, 8), ':')) AS INTEGER)
    END
    WHERE projection IN (SELECT projection FROM state WHERE key = 'figures')
        AND (key GLOB 'end:*' OR key GLOB 'coalesced:*' OR key GLOB 'summed:*');
    """,
    # Poison keeps its body, because the journal is pruned. It is tried again at the mark `retry_seq`.
    """
    CREATE TABLE poison (
        projection TEXT NOT NULL,
        seq INTEGER NOT NULL,
        retry_seq INTEGER,
        at_ms INTEGER NOT NULL,
        reason TEXT NOT NULL,
        tries INTEGER NOT NULL,
        received_ms INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        system_name TEXT NOT NULL,
        unpacked_bytes INTEGER,
        body BLOB NOT NULL,
        PRIMARY KEY (projection, seq)
    ) STRICT;
    """,
    # The process that kept the entry, see `programs`; NULL where that is not known or does not matter.
    "ALTER TABLE entries ADD COLUMN program TEXT;",
    # The files whose fingerprints entries say, see `fingerprints`; the index has `seq` as well.
    """
    CREATE TABLE fingerprints (
        seq INTEGER NOT NULL,
        fingerprint TEXT NOT NULL,
        did TEXT NOT NULL,
        system_name TEXT NOT NULL,
        filename TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        input_bytes INTEGER,
        forced INTEGER NOT NULL,
        PRIMARY KEY (seq, fingerprint)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX fingerprints_content ON fingerprints (fingerprint);
    """,
)
VERSION: Final = len(STEPS)


def migrate(connection: apsw.Connection, *, node: str) -> None:
    """Bring a journal to `VERSION` in one transaction; a journal of that version is only checked.

    There is no other writer. `node` is the random id of a new journal.

    Raises:
        JournalError: the file is another program's database.
        JournalVersionError: a newer Waybill wrote it.
    """
    version = int(connection.pragma("user_version"))
    application_id = int(connection.pragma("application_id"))
    name = connection.filename
    if version > VERSION:
        raise JournalVersionError(
            f"{name} has version {version}, and this Waybill supports {VERSION}; "
            "install the Waybill that wrote it, or a newer one"
        )
    if application_id not in {0, APPLICATION_ID} or (version and not application_id):
        raise JournalError(f"{name} is another program's database; choose another home")
    if version == VERSION:
        return
    with connection:
        connection.pragma("application_id", APPLICATION_ID)
        for step in STEPS[version:]:
            connection.execute(step)
        connection.execute("INSERT INTO meta VALUES ('node', ?) ON CONFLICT DO NOTHING", (node,))
        connection.pragma("user_version", VERSION)
