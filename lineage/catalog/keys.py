"""The keys by which files of a root are found: a hash of each text that somebody may look for.

A key has 64 bits. The upper 40 are those of the text's XXH3, seeded by the kind of the text. The lower 24 are
the number of a file that has the text. A hash that two texts share leads to a file too many, never to one too
few.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

if TYPE_CHECKING:
    from waybill.exporter import Query

NUMBER_BITS: Final = 24
NUMBERS: Final = 2**NUMBER_BITS
"""So many files at most can have a number."""

COLUMNS: Final = ("did", "parent_did", "filename", "annotations")
"""The columns whose texts have keys."""

_HASH_MASK: Final = 2**64 - NUMBERS
_DID, _PARENT, _FILENAME, _ANNOTATION = range(1, 5)
_LOOKED_UP_MAX: Final = 256
"""Of more dids than this, most files have one."""


def keys_of(table: pa.Table, number: int) -> pa.UInt64Array:
    """The keys of a file with some number, in order, from its `COLUMNS`; a key may be there twice."""
    hashes = array("Q")
    for name, kind in (("did", _DID), ("parent_did", _PARENT), ("filename", _FILENAME)):
        texts = table[name].combine_chunks()
        if pa.types.is_dictionary(texts.type):
            texts = texts.dictionary
        hashes.extend(_hashes(pc.unique(texts) if kind == _PARENT else texts, kind))
    for chunk in table["annotations"].chunks:
        hashes.extend(_hash(_pair(key, value), _ANNOTATION) for key, value in _distinct_pairs(chunk))
    plain = pa.Array.from_buffers(pa.uint64(), len(hashes), [None, pa.py_buffer(hashes)])
    keys = pc.bit_wise_or(
        pc.bit_wise_and(plain, pa.scalar(_HASH_MASK, pa.uint64())), pa.scalar(number, pa.uint64())
    )
    return in_order([keys])


def in_order(parts: Iterable[pa.UInt64Array]) -> pa.UInt64Array:
    """Keys in order, each once."""
    keys = pa.concat_arrays(list(parts))
    keys = keys.take(pc.array_sort_indices(keys))
    if len(keys) < 2:  # noqa: PLR2004 - one key is there once
        return keys
    # An array of Python's own values would make Arrow load pandas.
    differs = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
    return pa.concat_arrays([keys.slice(0, 1), keys.slice(1).filter(differs)])


def wanted_hashes(query: Query) -> list[list[int]]:
    """What a file must have to hold part of an answer: of each list one hash at least.

    A record that several files hold in part, as repeats of it do, may have its texts in different files.
    """
    wanted = []
    for one, some, kind in (
        (query.did, query.dids, _DID),
        (query.parent_did, query.parent_dids, _PARENT),
    ):
        if one is not None:
            wanted.append([_looked_for(one, kind)])
        if some is not None and len(some) <= _LOOKED_UP_MAX:
            wanted.append([_looked_for(text, kind) for text in some])
    named = query.filename_dids
    if query.filename is not None and not query.is_pattern("filename") and len(named) <= _LOOKED_UP_MAX:
        wanted.append([_looked_for(query.filename, _FILENAME), *(_looked_for(did, _DID) for did in named)])
    wanted += [[_looked_for(_pair(*pair), _ANNOTATION)] for pair in query.annotations.items()]
    return wanted


def _looked_for(text: str, kind: int) -> int:
    return _hash(text, kind) & _HASH_MASK


def _hash(text: str, kind: int) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"), kind)


def _pair(key: str, value: str) -> str:
    return f"{len(key)} {key}{value}"


def _hashes(texts: pa.StringArray, kind: int) -> Iterator[int]:
    texts = texts.drop_null()
    _, offsets, data = texts.buffers()
    if not len(texts):
        return
    ends = memoryview(offsets).cast("i")[texts.offset : texts.offset + len(texts) + 1]
    # An array of empty texts has no data at all.
    content, digest = memoryview(data or b""), xxhash.xxh3_64_intdigest
    for begin, end in pairwise(ends):
        yield digest(content[begin:end], kind)


def _distinct_pairs(column: pa.MapArray) -> Iterator[tuple[str, str]]:
    column = column.drop_null()
    keys, values = column.keys, column.items
    first = column.offsets[0].as_py() if len(column) else 0
    last = column.offsets[-1].as_py() if len(column) else 0
    keys, values = keys.slice(first, last - first), values.slice(first, last - first)
    keys, values = _encoded(keys), _encoded(values)
    count = max(len(values.dictionary), 1)
    codes = pc.add(pc.multiply(keys.indices.cast(pa.int64()), count), values.indices.cast(pa.int64()))
    names, texts = keys.dictionary.to_pylist(), values.dictionary.to_pylist()
    for code in pc.unique(codes.drop_null()).to_pylist():
        at, value_at = divmod(code, count)
        yield names[at], texts[value_at]


def _encoded(texts: pa.Array) -> pa.DictionaryArray:
    return texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
