"""What a fingerprint costs: of a plain file, and of the same content in each compression.

    python -m benchmarks.fingerprint

The rival of a plain file is the SHA-256 of Python's `hashlib.file_digest`; that of a compressed file is its
decompressor alone, which throws the content away: zlib, bz2 and lzma from the standard library, and
zstandard. Each measurement is a fresh process, and they alternate. *CPU s* hardly depends on the machine's
other load. *MB* is the peak memory beyond that of the same process before it reads the file.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import json
import lzma
import random
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import zstandard

from benchmarks.measuring import Results, in_folder, measured, median, parser_of, peak_mb
from waybill.transport import fingerprint_of

GOAL_RATIO: Final = 1.2
GOAL_GB_S: Final = 1.5

_READ_BYTES: Final = 2**16
_ENDINGS: Final = {"plain": "csv", "gzip": "gz", "zstd": "zst", "bzip2": "bz2", "xz": "xz"}
_WAYBILL: Final = "waybill"


def main() -> None:
    """Measure each compression in turn and print the table."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--mb", type=int, default=100, help="size of the content in MB (default 100)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the content (default 7)")
    in_folder(parser.parse_args(), _compare)


def _compare(arguments: argparse.Namespace, folder: Path) -> Results:
    paths = _files(folder, arguments.mb * 1_000_000, arguments.seed)
    results: Results = []
    for _ in range(arguments.rounds):
        for kind, path in paths.items():
            for who in (_WAYBILL, "rival"):
                figures = measured("benchmarks.fingerprint", who, kind, path)
                results.append({"kind": kind, "who": who, **figures})
    print(f"{'':<8} {'CPU s':>6} {'rival':>6} {'ratio':>6} {'GB/s':>6} {'MB':>5}")
    for kind in paths:
        names = ("cpu_s", "wall_s", "extra_mb")
        ours, theirs = (median(results, names, kind=kind, who=who) for who in (_WAYBILL, "rival"))
        ratio = ours["cpu_s"] / theirs["cpu_s"]
        speed_gb_s = arguments.mb / 1_000 / ours["wall_s"]
        print(
            f"{kind:<8} {ours['cpu_s']:>6.3f} {theirs['cpu_s']:>6.3f} {ratio:>6.2f} {speed_gb_s:>6.2f} "
            f"{ours['extra_mb']:>5.1f}"
        )
    print(f"goals: a plain file at {GOAL_GB_S} GB/s, a compressed one at a ratio of at most {GOAL_RATIO}")
    return results


def _files(folder: Path, size_bytes: int, seed: int) -> dict[str, Path]:
    """The same content, lines of words and numbers, in a plain file and in each compression."""
    chosen = random.Random(seed)  # noqa: S311 - no secret
    words = [f"{chosen.choice('abcdefgh')}{chosen.getrandbits(20):x}" for _ in range(5_000)]
    lines = [f"{','.join(chosen.choices(words, k=6))},{chosen.getrandbits(32)}\n" for _ in range(100_000)]
    block = "".join(lines).encode()
    content = b"".join(block for _ in range(size_bytes // len(block) + 1))[:size_bytes]
    compressed = {
        "plain": content,
        "gzip": gzip.compress(content, 6),
        "zstd": zstandard.ZstdCompressor().compress(content),
        "bzip2": bz2.compress(content),
        "xz": lzma.compress(content, preset=1),
    }
    paths = {kind: folder / f"content.{_ENDINGS[kind]}" for kind in compressed}
    for kind, path in paths.items():
        path.write_bytes(compressed[kind])
    return paths


def _work(who: str, kind: str, path: Path) -> None:
    """Read the file once, in this process, and print the figures."""
    if who == _WAYBILL:
        _load(kind, path.with_name("small"))
    before_mb = peak_mb()
    start_s, used_s = time.perf_counter(), time.process_time()
    if who == _WAYBILL:
        fingerprint_of(path)
    else:
        _RIVALS[kind](path)
    figures = {"cpu_s": time.process_time() - used_s, "wall_s": time.perf_counter() - start_s}
    print(json.dumps({**figures, "extra_mb": peak_mb() - before_mb}))


def _load(kind: str, path: Path) -> None:
    """Load the libraries, by a fingerprint of few bytes; programs do that once."""
    small: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "zstd": zstandard.compress,
        "bzip2": bz2.compress,
        "xz": lzma.compress,
    }
    path.write_bytes(small[kind](b"orders") if kind in small else b"orders")
    fingerprint_of(path)


def _sha256(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


class _Decompressor(Protocol):
    def decompress(self, data: bytes, /) -> bytes: ...


def _decompress(path: Path, decompressor: _Decompressor) -> None:
    with path.open("rb", buffering=0) as file:
        while data := file.read(_READ_BYTES):
            decompressor.decompress(data)


def _zstd(path: Path) -> None:
    buffer = bytearray(2**18)
    with path.open("rb", buffering=0) as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        while stream.readinto(buffer):
            pass


_RIVALS: Final[dict[str, Callable[[Path], None]]] = {
    "plain": _sha256,
    "gzip": lambda path: _decompress(path, zlib.decompressobj(31)),
    "zstd": _zstd,
    "bzip2": lambda path: _decompress(path, bz2.BZ2Decompressor()),
    "xz": lambda path: _decompress(path, lzma.LZMADecompressor()),
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        _work(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        main()
