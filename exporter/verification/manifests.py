"""Comparing a destination's manifests with its files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from waybill.transport.files import is_temporary

from ..directory import files_of, names
from ..exporting import MANIFEST, decode_manifest
from ..names import COMPACTED, relative


def contradictions(root: Path) -> Iterator[tuple[str, str]]:
    """Find where a destination's files and its manifests differ; nothing in a root without manifests.

    Each comes as a path relative to the root, and a sentence about it. Raises `OSError` if a file cannot be
    read.
    """
    systems = list(names(root / MANIFEST))
    listed: set[str] = set()
    for system in systems:
        for name in names(root / MANIFEST / system):
            if not is_temporary(Path(name)):
                yield from _of_manifest(root, MANIFEST / system / name, listed)
    if not systems:
        return
    for paths in files_of(root / COMPACTED).values():
        for path in paths:
            if relative(root, path) not in listed:
                yield relative(root, path), "no manifest lists it; export again, or move it away"


def _of_manifest(root: Path, manifest: PurePosixPath, listed: set[str]) -> Iterator[tuple[str, str]]:
    try:
        entries = decode_manifest((root / manifest).read_bytes())
    except msgspec.DecodeError:
        yield str(manifest), "it is not a manifest; move it away, and export again"
        return
    for path, one in sorted(entries.items()):
        listed.add(path)
        try:
            with (root / path).open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            what = "the manifest lists it, but it is gone; restore it from a copy, or export it again"
            yield path, what
            continue
        if sha256 != one.sha256:
            yield path, "it is not the file that the manifest lists; restore it from a copy"
