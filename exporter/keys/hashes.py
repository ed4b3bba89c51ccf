"""The hashes by which files are found: one of each text that somebody may look for.

A hash has 64 bits of an MD5: DuckDB and Python compute the same, today and with any version. A hash that two
texts share leads to a file too many, never to one too few.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..query import Query

_ROWS: Final = "read_parquet($files, hive_partitioning = false)"
_PAIRS: Final = f"""(
    FROM {_ROWS}
    SELECT file_index, unnest(map_keys(annotations)) AS name, unnest(map_values(annotations)) AS text
)"""
HASHES: Final = " UNION ALL ".join(
    # Each is hashed where it is read: what else is done with a text may hold thousands of them in memory.
    f"(FROM {rows} SELECT file_index, md5_number_lower({text}) AS hash)"
    for rows, text in (
        (_ROWS, "'d' || did"),
        (_ROWS, "'p' || parent_did"),
        (_ROWS, "'f' || filename"),
        (_PAIRS, "'a' || strlen(name) || ' ' || name || text"),
    )
)
"""The hashes of all texts in some files, each after the place of its file among them; some are null."""

_LOOKED_UP_MAX: Final = 256
"""Of more dids than this, most files have one."""


def wanted_hashes(query: Query) -> list[list[int]]:
    """What a file must have to hold part of an answer: of each list one hash at least.

    A record that several files hold in part, as repeats of it do, may have its texts in different files.
    """
    wanted = []
    for one, some, kind in ((query.did, query.dids, "d"), (query.parent_did, query.parent_dids, "p")):
        if one is not None:
            wanted.append([_hash(kind + one)])
        if some is not None and len(some) <= _LOOKED_UP_MAX:
            wanted.append([_hash(kind + text) for text in some])
    named = query.filename_dids
    if query.filename is not None and not query.is_pattern("filename") and len(named) <= _LOOKED_UP_MAX:
        wanted.append([_hash("f" + query.filename), *(_hash("d" + did) for did in named)])
    # With its length, no key is confused with the begin of another one.
    pairs = [f"a{len(_bytes(key))} {key}{value}" for key, value in query.annotations.items()]
    return wanted + [[_hash(pair)] for pair in pairs]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(_bytes(text), usedforsecurity=False).digest()[8:], "little")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
