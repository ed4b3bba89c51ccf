"""The endpoints for operators: health, metrics, and the state of an entry."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from waybill.exporter.health import Problem as HomeProblem, ProblemKind, problems_of_home, problems_of_root
from waybill.lineage.levels import read_latest
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.errors import JournalError, RootError
from waybill.transport.journal import RECEIPT_PATTERN, Receipt

from ..event_logs import EventLogStatus
from ..http import Answer, Problem, Request, json_answer, malformed, read_params, wrong_root
from ..intake import STALLED_S
from ..metrics import TEXT, event_logs_text, home_text, levels_text, problems_text, total_of

if TYPE_CHECKING:
    from waybill.transport import Journal, Settings

    from ..metrics import Metrics, Tallies
    from .reading import Readings

_OWNER: Final = "collector"

_ROOT_ANSWERS_S: Final = 1.0
"""A root that takes longer is reported as a problem; no request waits for it."""


class Readiness(msgspec.Struct, frozen=True):
    """Whether events can be accepted, and the problems.

    Attributes:
        ready: whether events sent now can be stored; a projection with a problem does not change that.
        problems: what is wrong and what to do, by what it is about: ``journal``, ``root``, ``event-logs``,
            the name of a projection that is held up, ``poison:layout`` and the like.
    """

    ready: bool
    problems: dict[str, str]


class Where(msgspec.Struct):
    """The entry to find."""

    receipt: Annotated[str, msgspec.Meta(pattern=RECEIPT_PATTERN)]


class HealthEndpoints:
    """Reports the collector's state.

    Args:
        journal: the home's.
        settings: the home's agreed ones.
        readings: begins its answers.
        metrics: the counters of this worker.
        tallies: the counters of the other workers, if there are any.
        follows: whether the collector follows Spark's event logs.
    """

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        readings: Readings,
        metrics: Metrics,
        tallies: Tallies | None,
        *,
        follows: bool,
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._readings = readings
        self._metrics = metrics
        self._tallies = tallies
        self._follows = follows
        # One probe at a time, on a separate thread: a disk that does not respond blocks no other thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="waybill-ready")
        self._metrics_thread = ThreadPoolExecutor(1, thread_name_prefix="waybill-metrics")
        self._root_thread = ThreadPoolExecutor(1, thread_name_prefix="waybill-root")
        self._root_look: Future[list[HomeProblem]] | None = None
        self._root_until_s = 0.0
        self._probe: asyncio.Future[Readiness] | None = None
        self._probe_until_s = 0.0

    async def live(self, _: Request) -> Answer:
        """200 while requests are answered at all."""
        return json_answer({"live": True})

    async def ready(self, _: Request) -> Answer:
        """200 if events sent now can be stored, else 503; the body names the problems."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().run_in_executor(self._thread, self._readiness)
            self._probe_until_s = SYSTEM_CLOCK.monotonic_s() + STALLED_S
        try:
            left_s = self._probe_until_s - SYSTEM_CLOCK.monotonic_s()
            readiness = await asyncio.wait_for(asyncio.shield(self._probe), max(left_s, 0.0))
        except TimeoutError:
            problem = f"a commit takes more than {STALLED_S:g} s; see what keeps the disk of the home"
            readiness = Readiness(ready=False, problems={ProblemKind.JOURNAL.value: problem})
        status = HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return json_answer(readiness, status=status)

    async def metrics(self, _: Request) -> Answer:
        """The metrics for Prometheus."""
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(self._metrics_thread, self._metrics_text)
        return Answer(HTTPStatus.OK, [("content-type", TEXT)], text.encode())

    async def where(self, request: Request) -> Answer:
        """The state of the entry that a receipt names."""
        given = read_params(request.query, Where).receipt
        receipt = Receipt.parse(given)
        if receipt is None:
            raise malformed("receipt", f"is {given[:40]!r}; use NODE-NUMBER")
        try:
            found = await asyncio.to_thread(lambda: self._readings.begin().answers.locate(receipt))
        except RootError as error:
            raise wrong_root(error) from None
        if found is None:
            detail = "this collector never issued that receipt; query the one that did"
            raise Problem(HTTPStatus.NOT_FOUND, detail)
        return json_answer(found)

    def _metrics_text(self) -> str:
        total = total_of(self._metrics, self._tallies)
        lines = [*total.text(), *home_text(self._journal), *problems_text(self.problems())]
        if self._follows and (status := EventLogStatus.of(self._journal)) is not None:
            lines += event_logs_text(status)
        if (levels := read_latest(self._journal)) is not None:
            lines += levels_text(levels)
        return "\n".join([*lines, ""])

    def _readiness(self) -> Readiness:
        try:
            # Only a write shows whether the disk accepts one.
            self._journal.commit(_OWNER, put={"probe": b""})
            problems = self.problems()
        except (JournalError, OSError) as error:
            return Readiness(ready=False, problems={ProblemKind.JOURNAL.value: str(error)})
        told: dict[str, str] = {}
        for one in problems:
            told.setdefault(one.about, one.sentence)
        return Readiness(ready=not any(one.stops_intake for one in problems), problems=told)

    def problems(self) -> list[HomeProblem]:
        """Everything that is wrong with the home; a root that does not answer holds this up only shortly."""
        followed = EventLogStatus.of(self._journal) if self._follows else None
        return [
            *problems_of_home(self._journal, self._settings),
            *self._problems_of_root(),
            *(followed.troubles if followed else ()),
        ]

    def _problems_of_root(self) -> list[HomeProblem]:
        """The root's problem, if any; its disk may hang without holding up anything here."""
        root = self._settings.root
        if self._root_look is None or self._root_look.done():
            self._root_look = self._root_thread.submit(problems_of_root, self._journal, root)
            self._root_until_s = SYSTEM_CLOCK.monotonic_s() + _ROOT_ANSWERS_S
        try:
            # A check that has timed out once is not waited for again.
            return self._root_look.result(max(self._root_until_s - SYSTEM_CLOCK.monotonic_s(), 0.0))
        except TimeoutError:
            says = f"{root} does not answer within {_ROOT_ANSWERS_S:g} s"
            return [HomeProblem(ProblemKind.ROOT, str(root), says, "see to its disk")]
