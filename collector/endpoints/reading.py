"""The records for one answer, from the files and the journal, and what the answer has to say of itself."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # the native module has no stub

from waybill.facets import ProvenanceRecord
from waybill.lineage.index import KeptIndex
from waybill.transport.budget import Budget, BudgetError
from waybill.transport.counting import counted
from waybill.transport.errors import RootError

from ..http import Problem, Request, UnknownName, busy, wrong_root

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.exporter import Query
    from waybill.exporter.keys import Keys
    from waybill.exporter.query import Dimension, TailReader
    from waybill.lineage.answers import GraphAnswers, HomeAnswers
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

_T = TypeVar("_T")

_UNFILED_ENTRIES_MAX: Final = 1_000_000
"""So many accepted entries may not be in files yet: folding them takes about ten seconds."""

_UNREAD_NAMED_MAX: Final = 100

READ_CPU_S_MAX: Final = 60.0
"""So much time of the processor may the answer to one request take; see `waybill.transport.budget`."""


class Readings:
    """Begins the answers of the collector's home; what they share is opened with the first and then kept.

    Args:
        journal: the home's journal.
        settings: its agreed settings.
    """

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._settings = settings
        self._kept = KeptIndex(journal)
        self._opened: tuple[Journal, TailReader, Keys] | None = None
        self._lock = threading.Lock()

    def begin(self, *, is_partial: bool = False) -> Reading:
        """The answers for one request.

        With `is_partial`, an answer that lacks records is enough; it comes with a warning then.
        """
        from waybill.lineage.answers import HomeAnswers

        _, tails, keys = self._open()
        answers = HomeAnswers(self._journal, self._settings, tails, keys, kept=self._kept)
        return Reading(answers, is_partial=is_partial)

    def of_graph(self) -> GraphAnswers:
        """The answers about the graph alone, for the collector itself; they load nothing that reads files."""
        from waybill.lineage.answers import GraphAnswers

        return GraphAnswers(self._journal, self._kept)

    def _open(self) -> tuple[Journal, TailReader, Keys]:
        from waybill.exporter.keys import Keys
        from waybill.exporter.query import TailReader
        from waybill.transport.journal import Journal

        with self._lock:
            if self._opened is None:
                journal = Journal(self._journal.home, to_read=True)
                tails = TailReader(journal, entries_max=_UNFILED_ENTRIES_MAX)
                self._opened = journal, tails, Keys()
            return self._opened

    def close(self) -> None:
        """Close what was opened; the next answer opens it again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()
        self._kept.close()


async def answer_within(executor: Executor, work: Callable[[], _T], request: Request) -> _T:
    """Have a thread answer a request, within the budget of one, for as long as its client waits.

    Raises:
        BudgetError: it takes more than that.
        ProtocolClosed: the client has gone away.
    """
    loop = asyncio.get_running_loop()
    budget = Budget(READ_CPU_S_MAX)
    answer = loop.run_in_executor(executor, budget.spend, work)
    gone = loop.create_task(request.wait_until_gone())
    try:
        either: list[asyncio.Future[Any]] = [answer, gone]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ProtocolClosed
        return await answer
    finally:
        budget.end()
        gone.cancel()
        answer.cancel()
        # An error's traceback has this frame. If the frame kept the future, which has the error, all that the
        # work has read would stay in memory until the garbage collector runs.
        del answer, either


class Lane:
    """One thread, which works on one request at a time, while a few wait.

    Args:
        name: of the thread.
        waiting_max: so many may be under way or wait; more are refused.
        what: the answers that are worked on, in words.
    """

    def __init__(self, name: str, waiting_max: int, what: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting_max = waiting_max
        self._what = what
        self._count = 0

    async def run(self, work: Callable[[], _T], request: Request) -> _T:
        """The result of some work, as `answer_within` gives it, after those that wait."""
        if self._count >= self._waiting_max:
            raise busy(f"{self._waiting_max} {self._what} are under way or wait; try again later")
        self._count += 1
        try:
            return await answer_within(self._thread, work, request)
        finally:
            self._count -= 1


class Reading:
    """The answers of the collector's home for one request, which may take several questions."""

    def __init__(self, answers: HomeAnswers, *, is_partial: bool) -> None:
        self.answers = answers
        self._is_partial = is_partial

    def tables(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Sequence[Dimension] | None = None,
    ) -> Iterator[pa.Table]:
        """The records that answer a query, or sums of them; see `waybill.lineage.Lineage`."""
        from waybill.exporter.query import IncompleteError

        try:
            yield from self.answers.tables(query, columns, summed_by=summed_by)
        except IncompleteError as error:
            if not self._is_partial:
                raise
            self.answers.notes[f"incomplete: {_count_of(error.unread)}"] = None

    def notes(self) -> list[str]:
        """What the answer has to say of itself, after all questions."""
        notes = list(self.answers.notes)
        if self.answers.unsettled:
            notes.append(f"unsettled: {counted(len(self.answers.unsettled), 'record')} may still change")
        return notes

    def headers(self) -> list[tuple[str, str]]:
        """The same as warnings in a header."""
        header = ", ".join(f'199 waybill "{_quotable(text)}"' for text in self.notes())
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
    except BudgetError as error:
        reason = "the answer takes too long"
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), reason=reason) from None
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
    return f"{counted(len(unread), 'file or entry', 'files or entries')} could not be read"
