"""Incomplete answers: each says so, and names the files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.transport.errors import WaybillError

from . import parquet
from .differing import list_differing
from .quarantine import list_quarantined

if TYPE_CHECKING:
    from .differing import Differing
    from .quarantine import Quarantined

log = logging.getLogger("waybill.exporter")

_NAMED_MAX: Final = 10


class IncompleteError(WaybillError):
    """A file could not be read, is in quarantine or is not the ledger's, so records may be missing.

    Args:
        unread: a sentence about each such file, and about each unreadable entry of the journal.
    """

    def __init__(self, unread: tuple[str, ...]) -> None:
        super().__init__(unread)
        self.unread = unread

    def __str__(self) -> str:
        named = " | ".join(self.unread[:_NAMED_MAX])
        more = len(self.unread) - _NAMED_MAX
        return f"records may be missing: {named}" + (f" | and {more:,} more" if more > 0 else "")


class Unread:
    """Collects the files whose records an answer lacks, as reading finds them.

    Args:
        known: sentences about files found before.
        tell: the sentence about a file of a root, and the error that reading it gave.
    """

    def __init__(
        self,
        known: Sequence[str] = (),
        tell: Callable[[Path, Exception, Path], str] = parquet.unreadable,
    ) -> None:
        self._sentences = {sentence: sentence for sentence in known}
        self._tell = tell

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence about each file."""
        return tuple(self._sentences.values())

    def add(self, path: Path, error: Exception, root: Path) -> None:
        """Note and log that a file of a root could not be read."""
        sentence = self._tell(path, error, root)
        if self._sentences.setdefault(str(path), sentence) is sentence:
            log.warning("%s", sentence)

    def add_known(
        self,
        root: Path,
        is_asked: Callable[[Quarantined | Differing], bool] = lambda _: True,
        differing: Iterable[Differing] = (),
    ) -> None:
        """Note the files of a root that are known to lack or to differ, if they may affect the answer.

        These are the quarantined files whose rows are not restored, and those that are not the ledger's: the
        noted ones and `differing`. A file may become one while a root is read, so call this after reading.
        """
        try:
            for one in list_quarantined(root):
                if one.restored_ms is None and is_asked(one):
                    self._sentences.setdefault(one.kept, one.sentence)
            for other in (*list_differing(root), *differing):
                if is_asked(other):
                    self._sentences.setdefault(str(root / other.path), other.sentence)
        except OSError as error:
            self._sentences.setdefault("known", str(error))

    def raise_any(self) -> None:
        """Raise `IncompleteError` if any file was noted."""
        if self._sentences:
            raise IncompleteError(self.sentences)
