"""A fingerprint depends on the content alone, however it is compressed and cut into pieces."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import pickle
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hypothesis
import pytest
import zstandard
from hypothesis import strategies as st

from waybill.transport import Fingerprint, FingerprintError, fingerprint_of, fingerprint_of_stream

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

EMPTY: Final = "xxh3-128:99aa06d3014798d86001c324468d497f"
"""Of no bytes, as the xxHash project's own tests have it."""

SKIPPED: Final = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
"""A frame of zstd without content, as pzstd puts one before each frame."""


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


Compress = Callable[[bytes], bytes]
COMPRESSIONS: Final[dict[str, Compress]] = {
    "gzip": gzip.compress,
    "gzip, stored": lambda content: gzip.compress(content, 0),
    "bzip2": bz2.compress,
    "xz": lambda content: lzma.compress(content, preset=0),
    "zstd": zstd,
    "zstd, with a note": lambda content: SKIPPED + zstd(content),
}
PADDED: Final = {"gzip", "gzip, stored", "bzip2", "xz"}
compressions: Final = st.sampled_from(sorted(COMPRESSIONS))
# No content that is itself compressed; a letter is no format's first byte but bzip2's.
contents: Final = st.binary(max_size=2_000).map(lambda some: b"." + some)


class InPieces(io.RawIOBase):
    """A stream that gives few bytes at a time, as a pipe may, and fails in the end if it is told to."""

    def __init__(self, content: bytes, at_once: int, failure: OSError | None = None) -> None:
        self._content = io.BytesIO(content)
        self._at_once = at_once
        self._failure = failure

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = self._content.readinto(memoryview(buffer)[: self._at_once])
        if self._failure is not None and not count:
            raise self._failure
        return count


def taken(stored: bytes, *, max_bytes: int = 2**30) -> Fingerprint:
    return fingerprint_of_stream(io.BytesIO(stored), "orders.csv", max_bytes=max_bytes)


@hypothesis.given(content=contents, kind=compressions, cuts=st.lists(st.integers(0, 2_001)), data=st.data())
def test_a_content_has_one_fingerprint_however_it_is_compressed_and_split(
    content: bytes, kind: str, cuts: list[int], data: st.DataObject
) -> None:
    ends = sorted({0, len(content), *(min(cut, len(content)) for cut in cuts)})
    padding = bytes(4 * data.draw(st.integers(0, 2))) if kind in PADDED else b""
    stored = b"".join(COMPRESSIONS[kind](content[begin:end]) + padding for begin, end in pairwise(ends))
    at_once = data.draw(st.integers(1, 3_000))
    plain = fingerprint_of_stream(InPieces(content, at_once), "plain")
    found = fingerprint_of_stream(InPieces(stored, at_once), "compressed")
    assert str(found) == str(plain)
    assert (plain.input_bytes, plain.content_bytes, plain.compression) == (len(content), len(content), None)
    assert (found.input_bytes, found.content_bytes) == (len(stored), len(content))
    assert found.compression == kind.partition(",")[0]


@hypothesis.given(one=contents, other=contents, kinds=st.tuples(compressions, compressions))
def test_two_contents_have_two_fingerprints(one: bytes, other: bytes, kinds: tuple[str, str]) -> None:
    stored = [COMPRESSIONS[kind](content) for kind, content in zip(kinds, (one, other), strict=True)]
    assert (taken(stored[0]).digest == taken(stored[1]).digest) == (one == other)


@hypothesis.given(content=contents, kind=compressions, data=st.data())
def test_a_file_that_is_cut_off_is_told_with_its_name_and_where(
    content: bytes, kind: str, data: st.DataObject
) -> None:
    stored = COMPRESSIONS[kind](content)
    recognized = 10 + (len(SKIPPED) if kind == "zstd, with a note" else 0)
    at = data.draw(st.integers(recognized, len(stored) - 1))
    with pytest.raises(FingerprintError, match=r"^orders\.csv: its \w+ data cannot be read near") as raised:
        taken(stored[:at])
    assert raised.value.file == "orders.csv"
    assert raised.value.offset_bytes == at
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@hypothesis.given(content=contents, kind=compressions, data=st.data())
def test_a_damaged_file_never_has_the_fingerprint_of_another_content(
    content: bytes, kind: str, data: st.DataObject
) -> None:
    stored = bytearray(COMPRESSIONS[kind](content))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = taken(bytes(stored))
    except FingerprintError:
        return
    # Bits such as the time in gzip's header do not matter; without its first bytes it is a file of no format.
    assert found.compression is None or str(found) == str(taken(content))


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_what_follows_the_compressed_data_is_damage(kind: str) -> None:
    with pytest.raises(FingerprintError, match="get the file again"):
        taken(COMPRESSIONS[kind](b"orders") + b"<html>an error page</html>")


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_bomb_is_given_up_as_soon_as_it_is_larger_than_allowed(kind: str) -> None:
    bomb = COMPRESSIONS[kind](bytes(2**22)) + COMPRESSIONS[kind](bytes(2**22))
    assert taken(bomb, max_bytes=2**23).content_bytes == 2**23
    tracemalloc.start()
    try:
        with pytest.raises(FingerprintError, match=r"more than 1,048,576 bytes.*fingerprint_max_bytes"):
            taken(bomb, max_bytes=2**20)
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


def test_a_large_file_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2**26)
    fingerprint_of(path)  # what it loads once does not count
    tracemalloc.start()
    try:
        assert fingerprint_of(path, max_bytes=1).content_bytes == 2**26, "a plain file has no limit"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_the_digits_are_those_of_other_programs(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert str(fingerprint_of(tmp_path / "empty")) == EMPTY
    assert {str(taken(compress(b""))) for compress in COMPRESSIONS.values()} == {EMPTY}


def test_one_compression_is_opened_which_the_content_tells_and_no_name(tmp_path: Path) -> None:
    once = gzip.compress(b"orders", mtime=0)
    twice = gzip.compress(once)
    assert taken(twice).content_bytes == len(once)
    assert taken(twice).digest != taken(once).digest
    plain, compressed = tmp_path / "orders.csv.gz", tmp_path / "orders.csv"
    plain.write_bytes(b"orders")
    compressed.write_bytes(once)
    assert str(fingerprint_of(compressed)) == str(fingerprint_of(str(plain)))


@pytest.mark.parametrize("kind", [*COMPRESSIONS, None])
def test_a_disk_that_fails_is_not_taken_for_damage(kind: str | None) -> None:
    content = bytes(5_000)
    stored = content if kind is None else COMPRESSIONS[kind](content)[:-1]
    with pytest.raises(OSError, match="the disk's own") as raised:
        fingerprint_of_stream(InPieces(stored, 100, OSError(errno.EIO, "the disk's own")), "orders.csv")
    assert raised.value.errno == errno.EIO


def test_a_stream_that_does_not_wait_for_its_data_is_refused() -> None:
    class Impatient(io.RawIOBase):
        def readinto(self, _: WriteableBuffer) -> None:
            return None

    with pytest.raises(BlockingIOError, match="has no data yet"):
        fingerprint_of_stream(Impatient(), "pipe")


@pytest.mark.parametrize("kind", ["fifo", "device", "link to a device"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "input"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(FingerprintError, match="no regular file"):
        fingerprint_of(path)


@pytest.mark.parametrize("change", [b"more", b""])
def test_a_file_that_changes_while_it_is_read_has_no_fingerprint(tmp_path: Path, change: bytes) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"some")
    os.utime(path, (0, 0))

    def write(_: int) -> None:
        if not path.stat().st_mtime_ns:
            with path.open("ab" if change else "r+b") as file:
                file.write(change or b"else")

    with pytest.raises(FingerprintError, match="changed while it was read"):
        fingerprint_of(path, on_read=write)


def test_progress_counts_each_byte_of_the_file_once() -> None:
    stored = gzip.compress(b"orders" * 1000)
    counts: list[int] = []
    fingerprint_of_stream(io.BytesIO(stored), "orders.csv", on_read=counts.append)
    assert sum(counts) == len(stored)
