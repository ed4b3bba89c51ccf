"""The SQL of the correlation index; no other module has any.

Users see three views. Below them, each set of details that many files share is stored once and has a number.
So has each file that came from another, or that another came from, because a did takes 36 bytes and the
closure names two in each row. Most files have neither, and their dids are stored once. A did is stored as
text: a view that turned sixteen bytes into text could not look one up by an index.

Most files are in one event alone that says nothing of their content, and end on the day on which they began.
So a row has few columns, what is said of few files is a list in one of them, and the last day is counted from
the first. Shared details that name producers have numbers below 0, so that their files can be listed without
an index of all.

    correlation_event(id_event, process, version, fingerprint, input_size, event_time, forced)
    correlation_details(id_event, field, JSON)
    correlation_lineage(id_parent, id_child, depth)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

FORMAT: Final = 1
"""The number of the format, `SCHEMA`; an index of another format is made again."""

SCHEMA: Final = """
CREATE TABLE place (node TEXT NOT NULL, seq INTEGER NOT NULL) STRICT;
CREATE TABLE aged (day INTEGER NOT NULL) STRICT;
CREATE TABLE shared_details (number INTEGER PRIMARY KEY, fields TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE files (
    did TEXT NOT NULL PRIMARY KEY,
    number INTEGER,
    event_time INTEGER,
    later_days INTEGER,
    filename TEXT,
    shared INTEGER REFERENCES shared_details (number),
    rare TEXT,
    last_day INTEGER AS (event_time / 86400000 + later_days),
    version TEXT AS (rare ->> 0),
    fingerprint TEXT AS (rare ->> 1),
    input_size INTEGER AS (rare ->> 2),
    forced INTEGER AS (rare ->> 3),
    conflict INTEGER AS (rare ->> 4)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX files_number ON files (number) WHERE number IS NOT NULL;
CREATE INDEX files_shared ON files (shared) WHERE shared < 0;
CREATE INDEX files_conflict ON files (did) WHERE conflict IS NOT NULL;
CREATE INDEX files_fingerprint ON files (fingerprint, event_time) WHERE fingerprint IS NOT NULL;
CREATE TABLE closure (
    child INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    PRIMARY KEY (child, depth, parent)
) STRICT, WITHOUT ROWID;
CREATE INDEX closure_down ON closure (parent, depth, child);
CREATE TABLE deep (number INTEGER PRIMARY KEY) STRICT;

CREATE VIEW correlation_event (id_event, process, version, fingerprint, input_size, event_time, forced) AS
SELECT did, fields ->> 'process', version, fingerprint, input_size, event_time, coalesce(forced, 0)
FROM files JOIN shared_details ON shared_details.number = files.shared
WHERE event_time IS NOT NULL;

CREATE VIEW correlation_details (id_event, field, JSON) AS
SELECT did, 'filename', json_quote(filename) FROM files WHERE filename IS NOT NULL
UNION ALL
SELECT did, 'conflict', 'true' FROM files WHERE conflict IS NOT NULL
UNION ALL
SELECT did, key, fields -> key
FROM files JOIN shared_details ON shared_details.number = files.shared, json_each(fields)
WHERE key <> 'process';

CREATE VIEW correlation_lineage (id_parent, id_child, depth) AS
SELECT above.did, below.did, depth
FROM closure JOIN files AS above ON above.number = parent JOIN files AS below ON below.number = child
UNION ALL
SELECT did, did, 0 FROM files;
"""

PLACE: Final = "SELECT node, seq FROM place"
CLEAR_PLACE: Final = "DELETE FROM place"
SET_PLACE: Final = "INSERT INTO place VALUES (?, ?)"

AGED: Final = "SELECT coalesce(max(day), 0) FROM aged"
CLEAR_AGED: Final = "DELETE FROM aged"
SET_AGED: Final = "INSERT INTO aged VALUES (?)"
NEXT_FILES: Final = "SELECT did, number, coalesce(last_day, 0) FROM files WHERE did > ? ORDER BY did LIMIT ?"
HAS_CHILD: Final = "SELECT EXISTS (SELECT 1 FROM closure WHERE parent = ?)"
PARENT_FILES: Final = """
SELECT did, number, coalesce(last_day, 0)
FROM closure JOIN files ON files.number = parent WHERE child = ? AND depth = 1
"""
CUT_FILE: Final = "DELETE FROM files WHERE did = ?"
CUT_ANCESTORS: Final = "DELETE FROM closure WHERE child = ?"
CUT_DEEP: Final = "DELETE FROM deep WHERE number = ?"
CUT_UNUSED_DETAILS: Final = """
DELETE FROM shared_details WHERE number NOT IN (SELECT shared FROM files WHERE shared IS NOT NULL)
"""

LAST_NUMBER: Final = "SELECT coalesce(max(number), 0) FROM files WHERE number IS NOT NULL"
_COLUMNS: Final = "did, number, event_time, later_days, filename, shared, rare"
_VALUES: Final = "(?, ?, ?, ?, ?, ?, ?)"
VALUES_OF_A_FILE: Final = _VALUES.count("?")
PUT_FILE: Final = f"""
INSERT INTO files ({_COLUMNS}) VALUES {_VALUES}
ON CONFLICT (did) DO UPDATE SET
    number = excluded.number, event_time = excluded.event_time, later_days = excluded.later_days,
    filename = excluded.filename, shared = excluded.shared, rare = excluded.rare
"""  # noqa: S608 - a text of our own


def put_new_files(count: int) -> str:
    """The statement that puts so many files at once, which takes half the time of one for each.

    Those that are stored already stay as they are, and `tell_stored` is called with their rows.
    """
    values = ",".join([_VALUES] * count)
    stored = ", ".join(f"files.{column}" for column in _COLUMNS.split(", "))
    return f"""
    INSERT INTO files ({_COLUMNS}) VALUES {values}
    ON CONFLICT (did) DO UPDATE SET did = did WHERE tell_stored({stored})
    """  # noqa: S608 - a text of our own


DETAILS: Final = "SELECT fields FROM shared_details WHERE number = ?"
NUMBER_OF_DETAILS: Final = "SELECT number FROM shared_details WHERE fields = ?"
PUT_DETAILS: Final = """
INSERT INTO shared_details (number, fields)
SELECT iif(:has_producer, min(0, min(number)) - 1, max(0, max(number)) + 1), :fields
FROM (SELECT coalesce(min(number), 0) AS number FROM shared_details
      UNION ALL SELECT coalesce(max(number), 0) FROM shared_details)
RETURNING number
"""

CLOSURE_UP: Final = "SELECT child, parent, depth FROM closure WHERE child = ?"
CLOSURE_DOWN: Final = "SELECT parent, child FROM closure WHERE parent = ?"
PUT_CLOSURE: Final = "INSERT INTO closure (child, depth, parent) VALUES (?, ?, ?)"
CUT_CLOSURE: Final = "DELETE FROM closure WHERE child = ? AND depth = ? AND parent = ?"
IS_DEEP: Final = "SELECT number FROM deep WHERE number = ?"
PUT_DEEP: Final = "INSERT INTO deep VALUES (?)"
ANY_DEEP: Final = "SELECT EXISTS (SELECT 1 FROM deep)"

NUMBER: Final = "SELECT number FROM files WHERE did = ?"
ANCESTORS: Final = """
SELECT did, depth FROM closure JOIN files ON files.number = parent WHERE child = ? ORDER BY depth DESC
"""
DESCENDANTS: Final = """
SELECT did, depth FROM closure JOIN files ON files.number = child WHERE parent = ? ORDER BY depth
"""
EDGES_UP: Final = """
WITH RECURSIVE reached (number) AS (
    SELECT ? UNION SELECT parent FROM reached JOIN closure ON child = reached.number AND depth = 1
)
SELECT child, parent FROM reached JOIN closure ON child = reached.number AND depth = 1
"""
"""The edges above a file, each as the nearer file and the farther one; it ends in circles, too."""
EDGES_DOWN: Final = """
WITH RECURSIVE reached (number) AS (
    SELECT ? UNION SELECT child FROM reached JOIN closure ON parent = reached.number AND depth = 1
)
SELECT parent, child FROM reached JOIN closure ON parent = reached.number AND depth = 1
"""
_OF_EVENTS: Final = """
SELECT did FROM files
WHERE shared < 0 AND last_day >= :first_day AND shared IN (
    SELECT number FROM shared_details, json_each(fields, {path}) WHERE {condition}
)
LIMIT :count
"""
WITH_INPUT: Final = _OF_EVENTS.format(
    path="'$.inputs'",
    condition="value = :name OR instr(:name, '/') = 0 AND "
    "substr(rtrim(value, '/'), -length(:name) - 1) = '/' || :name",
)
"""Those that name an input, by the dataset or by the last part of its name."""
WITH_PRODUCER: Final = _OF_EVENTS.format(path="'$.producers'", condition="value = :name")
CONFLICTS: Final = "SELECT did FROM files WHERE conflict IS NOT NULL ORDER BY did"
_ASKED_AT_ONCE: Final = 250
_ANY: Final = ",".join("?" * _ASKED_AT_ONCE)


def bindings_of(files: Iterable[str | int]) -> Iterator[list[str | int | None]]:
    """The bindings for the four statements below: one about many files is faster."""
    wanted: list[str | int | None] = list(files)
    wanted += [None] * (-len(wanted) % _ASKED_AT_ONCE)
    for at in range(0, len(wanted), _ASKED_AT_ONCE):
        yield wanted[at : at + _ASKED_AT_ONCE]


DIDS: Final = f"SELECT number, did FROM files WHERE number IN ({_ANY})"  # noqa: S608 - a text of our own
FILES: Final = f"""
SELECT {_COLUMNS} FROM files WHERE did IN ({_ANY})
"""  # noqa: S608 - a text of our own
PARENTS: Final = f"""
SELECT below.did, above.did
FROM files AS below JOIN closure ON child = below.number AND depth = 1
JOIN files AS above ON above.number = parent
WHERE below.did IN ({_ANY})
"""  # noqa: S608 - a text of our own
CHILDREN: Final = f"""
SELECT above.did, below.did
FROM files AS above JOIN closure ON parent = above.number AND depth = 1
JOIN files AS below ON below.number = child
WHERE above.did IN ({_ANY})
"""  # noqa: S608 - a text of our own
