"""The journal's tables. A change of them is another `VERSION`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import JournalError, JournalVersionError

if TYPE_CHECKING:
    import apsw

APPLICATION_ID: Final = 0x57_42_49_4C
"""``WBIL`` in SQLite's header, which identifies a journal, also to the command ``file``."""

VERSION: Final = 5

# Of an entry, `digest` is NULL for a mark, since marks are never repeats of each other; `unpacked_bytes` is
# set where the body is LZ4 (one block) and had this size; `program` is the process that kept it, see
# `programs`, NULL where that is not known or does not matter. Sequence numbers are never used again because
# the newest entry is never pruned. Where `seq` of a state is set, the state goes when that entry is pruned.
# Poison keeps its body, because the journal is pruned; it is tried again at the mark `retry_seq`.
_TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY,
    received_ms INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    system_name TEXT NOT NULL,
    digest BLOB UNIQUE,
    body BLOB NOT NULL,
    unpacked_bytes INTEGER,
    program TEXT
) STRICT;
CREATE TABLE cursors (projection TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE state (
    projection TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    seq INTEGER,
    PRIMARY KEY (projection, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX state_seq ON state (seq) WHERE seq IS NOT NULL;
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
"""


def check_tables(connection: apsw.Connection) -> bool:
    """Check that a database is a journal of this version; return whether it has its tables.

    Raises:
        JournalError: the file is another program's database.
        JournalVersionError: it has another version.
    """
    version = int(connection.pragma("user_version"))
    application_id = int(connection.pragma("application_id"))
    name = connection.filename
    if application_id not in {0, APPLICATION_ID} or (version and not application_id):
        raise JournalError(f"{name} is another program's database; choose another home")
    if version not in {0, VERSION}:
        raise JournalVersionError(
            f"{name} has version {version}, and this Waybill reads version {VERSION}; "
            "use the Waybill that wrote it, or choose another home"
        )
    return version == VERSION


def make_tables(connection: apsw.Connection, *, node: str) -> None:
    """Make the tables of a new journal in one transaction; an existing journal is only checked.

    There is no other writer. `node` is the random id of a new journal. Raises what `check_tables` does.
    """
    if check_tables(connection):
        return
    with connection:
        connection.pragma("application_id", APPLICATION_ID)
        connection.execute(_TABLES)
        connection.execute("INSERT INTO meta VALUES ('node', ?)", (node,))
        connection.pragma("user_version", VERSION)
