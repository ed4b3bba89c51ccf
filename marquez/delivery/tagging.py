"""The tags of jobs, as Marquez's page shows them.

Marquez reads no tags from events: each one is set by a request of its own, for a job that exists. Waybill
does so for the tags in the events of files, beside the delivery and after it. A request that fails is logged
and repeated later. Tags that others set stay: Waybill removes only those that it set itself and that an event
no longer has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from waybill.facets.flows import FlowNode

from ..backend import Verdict
from ..graph import row_key
from ..links import namespace_in_marquez

if TYPE_CHECKING:
    from waybill.facets.standard import JobNotes

    from ..backend import Answer, Backend

log = logging.getLogger("waybill.marquez")

TAGS_PREFIX: Final = "tags:"
AGAIN_AFTER_S: Final = 60.0
"""A job's tags are sent no sooner than this after the last time, because emitters may disagree about them.
Each failure doubles the time."""
AGAIN_MAX_S: Final = 3_600.0
BUSY_EVERY_S: Final = 5.0
"""While events wait, one job is tagged in this time. Marquez may not have a new job before."""
JOBS_MAX: Final = 10_000
"""The tags of further jobs are not sent."""

_DOTS: Final = frozenset({"", ".", ".."})
"""As a part of a path they would name something else, and a DELETE would remove it."""
_GONE: Final = 404


class _Tagged(msgspec.Struct):
    """A job, the tags that the last event with facts about it has, and those that are set."""

    job: FlowNode
    wanted: tuple[str, ...] = ()
    done: tuple[str, ...] = ()


class Tagging:
    """Sets the tags of jobs at a Marquez, one job at a time.

    Args:
        rows: the stored tags by key.
        backend: None for one that takes no tags.
        now_s: seconds of a clock that never goes back.
    """

    def __init__(self, rows: Mapping[str, bytes], backend: Backend | None, name: str, now_s: float) -> None:
        self._backend, self._name = backend, name
        self._jobs = {one.job: one for one in map(_ROW.decode, rows.values())}
        self._due_s = {job: 0.0 for job, one in self._jobs.items() if one.wanted != one.done}
        self._after_s: dict[FlowNode, float] = {}
        """When a job may be tagged again."""
        self._failures: dict[FlowNode, int] = {}
        self._changed: set[FlowNode] = set()
        self._sender = ThreadPoolExecutor(1, thread_name_prefix=f"waybill-{name}-tags")
        self._in_flight: tuple[_Tagged, Future[Answer | None]] | None = None
        self._busy_until_s = now_s + BUSY_EVERY_S

    def want(self, job: FlowNode, facets: JobNotes) -> None:
        """Take in the facts that an event states about a job; an event without any changes nothing."""
        if self._backend is None or not facets:
            return
        tags = dict.fromkeys(
            one.key if one.text in {"", "true"} else f"{one.key}:{one.text}" for one in facets.tags
        )
        wanted = tuple(one for one in tags if one.strip() not in _DOTS)
        known = self._jobs.get(job)
        if known is None:
            if not wanted or len(self._jobs) >= JOBS_MAX or not _DOTS.isdisjoint(job):
                return
            known = self._jobs[job] = _Tagged(job)
        if wanted != known.wanted:
            known.wanted = wanted
            self._changed.add(job)
            self._due_s.setdefault(job, self._after_s.get(job, 0.0))

    def work(self, now_s: float, *, is_idle: bool) -> bool:
        """Note the result of the last job, and begin the next; returns whether a job is under way.

        Unless `is_idle`, the next one begins only `BUSY_EVERY_S` after the last.
        """
        if self._in_flight is not None and self._in_flight[1].done():
            self._note(*self._in_flight, now_s)
            self._in_flight = None
        if self._backend is not None and (is_idle or now_s >= self._busy_until_s):
            self._busy_until_s = now_s + BUSY_EVERY_S
            while self._in_flight is None and self._due_s:
                job = min(self._due_s, key=self._due_s.__getitem__)
                if self._due_s[job] > now_s:
                    break
                del self._due_s[job]
                if (one := self._jobs[job]).wanted != one.done:
                    self._in_flight = one, self._sender.submit(_apply, self._backend, one)
        return self._in_flight is not None

    def wait(self, timeout_s: float | None) -> None:
        """Wait for the job that is under way."""
        if self._in_flight is not None:
            wait([self._in_flight[1]], timeout_s)

    def wait_s(self, now_s: float) -> float | None:
        """In how many seconds the next job is due, also while events wait."""
        if not self._due_s:
            return None
        return max(min(self._due_s.values()) - now_s, self._busy_until_s - now_s, 0.0)

    def changed(self) -> Iterator[tuple[str, bytes]]:
        """The key and the row of each job that has changed since the last call."""
        for job in self._changed:
            yield f"{TAGS_PREFIX}{row_key(job)}", msgspec.json.encode(self._jobs[job])
        self._changed.clear()

    def close(self) -> None:
        """End the thread."""
        self._sender.shutdown()

    def _note(self, one: _Tagged, future: Future[Answer | None], now_s: float) -> None:
        failure = future.result()
        self._changed.add(one.job)
        failures = self._failures.pop(one.job, 0)
        if failure is not None:
            self._failures[one.job] = failures + 1
            if not failures:
                log.warning("%s does not tag %s now: %s", self._name, one.job.name, failure.shown)
        self._after_s[one.job] = now_s + min(AGAIN_AFTER_S * 2.0 ** min(failures, 10), AGAIN_MAX_S)
        if one.wanted != one.done:
            self._due_s[one.job] = self._after_s[one.job]


def _apply(backend: Backend, one: _Tagged) -> Answer | None:
    """Remove and set a job's tags; returns the first response that is a failure."""
    wanted, namespace, name = one.wanted, namespace_in_marquez(one.job.namespace), one.job.name
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/jobs/{quote(name, safe='')}/tags/"
    for tag in (*one.done, *wanted):
        if (tag in one.done) == (tag in wanted):
            continue
        answer = backend.request("POST" if tag in wanted else "DELETE", path + quote(tag, safe=""))
        is_gone = answer.status == _GONE and tag not in wanted
        if answer.verdict is not Verdict.DELIVERED and not is_gone:
            return answer
        one.done = tuple(done for done in one.done if done != tag) + ((tag,) if tag in wanted else ())
    one.done = wanted
    return None


_ROW: Final = msgspec.json.Decoder(_Tagged)
