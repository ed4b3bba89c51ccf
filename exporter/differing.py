"""The compacted and late files of a root that are not those of its ledger, as a comparison found them.

    provenance/keys/differing.json

Whoever keeps the keys compares: an hour when it changes, and all hours every few minutes. What is noted stays
until a later comparison finds that the file is as the ledger says, or that somebody settled the difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.files import Files, publish

from .names import KEYS, Hour

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def note_differing(root: Path, files: Files, differing: Sequence[Differing]) -> None:
    """Replace the note; the caller has the lock of the keys. Raises `OSError`."""
    if differing:
        publish(files, root / DIFFERING, msgspec.json.encode(differing))
    else:
        files.remove(root / DIFFERING)


_DECODER: Final = msgspec.json.Decoder(list[Differing])
