"""The hashes by which files are found: one of each text that somebody may look for.

DuckDB computes them, for a tenth of what an MD5 costs. Another version may do so differently, so keys are
made again with each. A hash that two texts share leads to a file too many, never to one too few.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from ..query import connect, execute

if TYPE_CHECKING:
    from ..query import Query

_ROWS: Final = "read_parquet($files, hive_partitioning = false)"
_PAIRS: Final = f"""(
    FROM {_ROWS}
    SELECT file_index, unnest(map_keys(annotations)) AS name, unnest(map_values(annotations)) AS text
)"""
HASHES: Final = " UNION ALL ".join(
    # Each is hashed where it is read: what else is done with a text may hold thousands of them in memory.
    f"(FROM {rows} SELECT file_index, hash({text}) AS hash WHERE {needed} IS NOT NULL)"
    for rows, text, needed in (
        (_ROWS, "'d' || did", "did"),
        (_ROWS, "'p' || parent_did", "parent_did"),
        (_ROWS, "'f' || filename", "filename"),
        (_PAIRS, "'a' || strlen(name) || ' ' || name || text", "text"),
    )
)
"""The hashes of all texts in some files, each after the place of its file among them."""
_HASHED: Final = "SELECT hash(text) FROM (SELECT unnest($texts) AS text)"

_LOOKED_UP_MAX: Final = 256
"""Of more dids than this, most files have one."""


def wanted_hashes(query: Query) -> list[list[int]]:
    """The hashes of `wanted_texts`; a text that no file can have has none."""
    wanted = [[text for text in texts if _is_storable(text)] for texts in wanted_texts(query)]
    if not wanted:
        return []
    with connect() as connection:
        found = execute(connection, _HASHED, {"texts": list(chain.from_iterable(wanted))})
    hashes = (hashed for (hashed,) in found)
    return [list(islice(hashes, len(texts))) for texts in wanted]


def wanted_texts(query: Query) -> list[list[str]]:
    """What a file must have to hold part of an answer: of each list one text at least, after its kind.

    A record that several files hold in part, as repeats of it do, may have its texts in different files.
    """
    wanted: list[list[str]] = []
    for one, some, kind in ((query.did, query.dids, "d"), (query.parent_did, query.parent_dids, "p")):
        if one is not None:
            wanted.append([kind + one])
        if some is not None and len(some) <= _LOOKED_UP_MAX:
            wanted.append([kind + text for text in some])
    named = query.filename_dids
    if query.filename is not None and not query.is_pattern("filename") and len(named) <= _LOOKED_UP_MAX:
        wanted.append(["f" + query.filename, *("d" + did for did in named)])
    # With its length, no key is confused with the begin of another one.
    for key, value in query.annotations.items():
        wanted.append([f"a{len(key.encode('utf-8', 'replace'))} {key}{value}"])
    return wanted


def _is_storable(text: str) -> bool:
    """Whether a file can have a text: half of a surrogate pair is in none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
