"""The compacted and late files of a root that are not those of its ledger, as a comparison found them.

    provenance/keys/differing.json

Whoever keeps the keys compares: an hour when it changes, and all hours every few minutes. Whoever changes an
hour notes what is gone there, before another file takes its place. What is noted stays until a later
comparison finds that the file is as the ledger says, or that somebody settled the difference.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from waybill.transport.files import Files, publish
from waybill.transport.locks import locked

from .names import KEYS, Hour, hour_in
from .remedies import repair_command

log = logging.getLogger("waybill.exporter")

DIFFERING: Final = KEYS / "differing.json"
LOCK: Final = ".lock"
"""Whoever writes below ``provenance/keys`` holds this lock there."""


class Differing(msgspec.Struct, frozen=True, order=True):
    """A file that is not the one in the ledger.

    Attributes:
        path: relative to the root.
        hour: the hour of its rows.
        sentence: what is wrong, and what to do.
    """

    path: str
    hour: Hour
    sentence: str


def list_differing(root: Path) -> list[Differing]:
    """The noted files; raises `OSError` if the note cannot be read."""
    try:
        return _DECODER.decode((root / DIFFERING).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except msgspec.DecodeError as error:
        raise OSError(
            f"{root / DIFFERING} is damaged ({error}); delete it, then run `waybill flush`"
        ) from None


def note_differing(
    root: Path, files: Files, found: Mapping[str, str], *, settled: Collection[Hour] = ()
) -> None:
    """Note what is wrong with some files, by path, and forget what was noted of some hours.

    The caller has the lock of the keys. Raises `OSError`.
    """
    before = list_differing(root)
    stays = {one.path: one for one in before if one.hour not in settled}
    differing = sorted((stays | {one.path: one for one in tell_differing(root, found)}).values())
    if differing == before:
        return
    if differing:
        publish(files, root / DIFFERING, msgspec.json.encode(differing))
    else:
        files.remove(root / DIFFERING)
    for one in differing:
        if one not in before:
            log.warning("%s", one.sentence)


def tell_differing(root: Path, found: Mapping[str, str]) -> list[Differing]:
    """What is wrong with some files, by path, with what to do."""
    way_out = f"run `waybill verify {shlex.quote(str(root))}`, and `{repair_command(root)}`"
    return [
        Differing(path, hour, f"{what}; {way_out}")
        for path, what in sorted(found.items())
        if (hour := hour_in(path)) is not None
    ]


def note_gone(root: Path, files: Files, paths: Collection[str]) -> None:
    """Note that some files of the ledger are gone, although no age-off removed them. Raises `OSError`."""
    files.make_folder(root / KEYS)
    with locked(root / KEYS / LOCK):
        note_differing(root, files, {path: tell_gone(path) for path in paths})


def tell_gone(path: str) -> str:
    """What is wrong with a file of the ledger that is not there."""
    return f"{path} is gone, and no age-off removed it"


_DECODER: Final = msgspec.json.Decoder(list[Differing])
