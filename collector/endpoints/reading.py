"""The records for one answer, from the files and the journal, and what the answer has to say of itself."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from waybill.exporter import reading
from waybill.facets import ProvenanceRecord
from waybill.transport.counting import counted
from waybill.transport.errors import RootError
from waybill.transport.root import check_root

from ..http import Problem, busy, wrong_root

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from waybill.exporter import Query
    from waybill.exporter.query import Dimension
    from waybill.lineage.catalog import Catalog
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

_WINDOW_ROWS: Final = 125_000
"""A query holds at most this many rows in memory, and as many bytes as `scan` allows for them."""

_BACKLOGS_MAX: Final = 8
"""How often the unfiled entries may be read for one query, one span of time each time."""

_SLOW: Final = "slow: the catalog cannot be used until the runner or `waybill catalog` has made it again"
_NOT_ALL_RUNS: Final = "incomplete: too many runs are not filed yet"
_UNREAD_NAMED_MAX: Final = 100


@functools.cache
def _catalog_of(root: Path, kept_bytes: int) -> Catalog:  # noqa: ARG001 - each root has its own
    """The catalog that all answers about a root share, since it keeps what it has read."""
    from waybill.lineage.catalog import Catalog

    return Catalog(kept_bytes=kept_bytes)


class Reading:
    """Reads the records for one answer, which may take several questions.

    Args:
        asker: the name of the API key that asks; empty without one.
        is_partial: whether an answer that lacks records is enough; it comes with a warning then.

    Raises:
        RootError: the root is not there, or is another folder.
    """

    def __init__(self, journal: Journal, settings: Settings, asker: str, *, is_partial: bool = False) -> None:
        check_root(journal, settings.root)
        self._journal = journal
        self._settings = settings
        self._asker = asker
        self._is_partial = is_partial
        self._warnings: dict[str, None] = {}

    def tables(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Sequence[Dimension] | None = None,
    ) -> Iterator[pa.Table]:
        """The records that answer a query, or sums of them; see `waybill.exporter.query.answer`."""
        from waybill.exporter.query import IncompleteError, answer, read_unsettled
        from waybill.lineage.kin import by_records, open_kin

        query = reading.allow(reading.Asker(reading.Door.HTTP, self._asker), query)
        # This comes first: entries that are filed in the meantime are found in the files.
        now_ms = time.time_ns() // 1_000_000
        runs = read_unsettled(self._journal, self._settings, query, now_ms=now_ms)
        if not runs.is_whole:
            is_on = self._settings.provenance_enabled
            todo = "try again later" if is_on else "turn provenance_enabled on"
            self._warnings[f"{_NOT_ALL_RUNS}; {todo}"] = None
        if runs.open:
            self._warnings[f"unsettled: {counted(len(runs.open), 'record')} may still change"] = None
        catalog = _catalog_of(self._settings.root, self._settings.query_cache_bytes)
        try:
            with open_kin(self._journal.home, query) as kin:
                yield from answer(
                    self._journal,
                    self._settings,
                    by_records(query, kin),
                    window_rows=_WINDOW_ROWS,
                    columns=columns,
                    summed_by=summed_by,
                    derived=[*runs.settled, *runs.open],
                    backlogs_max=_BACKLOGS_MAX,
                    access=catalog,
                    below=kin.children_of,
                )
        except IncompleteError as error:
            if not self._is_partial:
                raise
            self._warnings[f"incomplete: {_count_of(error.unread)}"] = None
        if catalog.problem is not None:
            self._warnings[_SLOW] = None

    def headers(self) -> list[tuple[str, str]]:
        """The warnings that the answer needs, after all questions."""
        from waybill.exporter.query import poison_note

        # An entry that was set aside in the meantime became poison when the cursor passed it, so this comes
        # last.
        if (note := poison_note(self._journal)) is not None:
            self._warnings[note] = None
        header = ", ".join(f'199 waybill "{text}"' for text in self._warnings)
        return [("warning", header)] if header else []


@contextlib.contextmanager
def problems_told(to_do: str = "repair them") -> Iterator[None]:
    """Answer with a problem if the records cannot be read; `to_do` is for those that may be missing."""
    from waybill.exporter.query import BacklogError, IncompleteError, TooManyError

    try:
        yield
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
