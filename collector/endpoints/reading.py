"""The records for one answer, from the files and the journal, and what the answer has to say of itself."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from waybill.exporter import reading
from waybill.facets import ProvenanceRecord
from waybill.transport.counting import counted
from waybill.transport.errors import RootError

from ..http import Problem, UnknownName, busy, wrong_root

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from waybill.exporter import Query
    from waybill.exporter.keys import Keys
    from waybill.exporter.query import Dimension, TailReader
    from waybill.lineage.index import KeptIndex
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

_UNFILED_ENTRIES_MAX: Final = 1_000_000
"""So many accepted entries may not be in files yet: folding them takes about ten seconds."""

_UNREAD_NAMED_MAX: Final = 100


@functools.cache
def _keys_of(root: Path) -> Keys:  # noqa: ARG001 - each root has its own
    """The keys that all answers about a root share, since they keep what they have read."""
    from waybill.exporter.keys import Keys

    return Keys()


@functools.cache
def _tails_of(home: Path) -> TailReader:
    """The reader that all answers about a home share, since it keeps what it has read."""
    from waybill.exporter.query import TailReader

    return TailReader(home, entries_max=_UNFILED_ENTRIES_MAX)


@functools.lru_cache(maxsize=1)
def _index_of(journal: Journal) -> KeptIndex:
    """The index that all answers of the collector's home share, since it stays open."""
    from waybill.lineage.index import KeptIndex

    return KeptIndex(journal)


class Reading:
    """The answers of the collector's home for one request, which may take several questions.

    Args:
        key: the name of the API key that asks; empty without one.
        is_partial: whether an answer that lacks records is enough; it comes with a warning then.
    """

    def __init__(self, journal: Journal, settings: Settings, key: str, *, is_partial: bool = False) -> None:
        from waybill.lineage.answers import HomeAnswers

        asker = reading.Asker(reading.Door.HTTP, key)
        tails, keys, kept = _tails_of(journal.home), _keys_of(settings.root), _index_of(journal)
        self.answers = HomeAnswers(journal, settings, tails, keys, asker, kept=kept)
        self._is_partial = is_partial

    def tables(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Sequence[Dimension] | None = None,
    ) -> Iterator[pa.Table]:
        """The records that answer a query, or sums of them; see `waybill.lineage.answers.Answers`."""
        from waybill.exporter.query import IncompleteError

        try:
            yield from self.answers.tables(query, columns, summed_by=summed_by)
        except IncompleteError as error:
            if not self._is_partial:
                raise
            self.answers.notes[f"incomplete: {_count_of(error.unread)}"] = None

    def headers(self) -> list[tuple[str, str]]:
        """The warnings that the answer needs, after all questions."""
        notes = dict(self.answers.notes)
        if self.answers.unsettled:
            notes[f"unsettled: {counted(len(self.answers.unsettled), 'record')} may still change"] = None
        header = ", ".join(f'199 waybill "{_quotable(text)}"' for text in notes)
        return [("warning", header)] if header else []


def _quotable(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'").encode("unicode_escape").decode()


@contextlib.contextmanager
def problems_told(to_do: str = "repair them") -> Iterator[None]:
    """Answer with a problem if the records cannot be read; `to_do` is for those that may be missing."""
    from waybill.exporter.query import BacklogError, IncompleteError, InvalidQueryError, TooManyError
    from waybill.lineage.answers import UnknownNameError

    try:
        yield
    except UnknownNameError as error:
        unknown = UnknownName(error.what, error.name, error.nearest)
        reason = "a name is unknown"
        raise Problem(HTTPStatus.NOT_FOUND, str(error), reason=reason, unknown=unknown) from None
    except InvalidQueryError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, str(error)) from None
    except BacklogError as error:
        raise busy(str(error)) from None
    except TooManyError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, str(error)) from None
    except IncompleteError as error:
        count = _count_of(error.unread)
        detail = f"{count}, so records may be missing; {to_do}"
        errors = error.unread[:_UNREAD_NAMED_MAX]
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, errors=errors, reason=count) from None
    except RootError as error:
        raise wrong_root(error) from None
    except OSError as error:
        detail = f"the files cannot be read now ({error}); check the disk and its permissions"
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, reason="the files cannot be read") from None


def _count_of(unread: Sequence[str]) -> str:
    return f"{len(unread):,} files or entries could not be read"
