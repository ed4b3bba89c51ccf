"""The tags of jobs, as Marquez's page shows them.

Marquez reads no tags from events: each one is set by a request of its own, for a job that exists. Waybill
does so for the tags in the events of files, while no event waits. A request that fails is logged and repeated
later. Tags that others set stay: Waybill removes only those that it set itself and that an event no longer
has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
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
"""A job's tags are sent no sooner than this after the last time, because emitters may disagree about them."""
FAILED_AGAIN_S: Final = 600.0
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
    """Sets the tags of jobs at a Marquez; `rows` are the stored ones by key, other backends get none."""

    def __init__(self, rows: Mapping[str, bytes], backend: Backend | None) -> None:
        self._backend = backend
        self._jobs = {one.job: one for one in map(_ROW.decode, rows.values())}
        self._due_s = {job: 0.0 for job, one in self._jobs.items() if one.wanted != one.done}
        self._after_s: dict[FlowNode, float] = {}
        """When a job may be tagged again."""
        self._changed: set[FlowNode] = set()

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

    def due_s(self, now_s: float) -> float | None:
        """In how many seconds the next job is due; None: no job is to be tagged."""
        return max(min(self._due_s.values()) - now_s, 0.0) if self._due_s else None

    def tag_next(self, now_s: float) -> None:
        """Tag the job that is due next, and wait for Marquez."""
        one = self._jobs[min(self._due_s, key=self._due_s.__getitem__)]
        failure = self._apply(one)
        self._changed.add(one.job)
        self._after_s[one.job] = now_s + AGAIN_AFTER_S
        del self._due_s[one.job]
        if failure is not None:
            self._due_s[one.job] = now_s + FAILED_AGAIN_S
            log.warning("a job is not tagged now: %s: %s", one.job.name, failure.shown)

    def changed(self) -> Iterator[tuple[str, bytes]]:
        """The key and the row of each job that has changed since the last call."""
        for job in self._changed:
            yield f"{TAGS_PREFIX}{row_key(job)}", msgspec.json.encode(self._jobs[job])
        self._changed.clear()

    def _apply(self, one: _Tagged) -> Answer | None:
        """Remove and set a job's tags; returns the first response that is a failure."""
        wanted, names = one.wanted, (namespace_in_marquez(one.job.namespace), one.job.name)
        path = "/api/v1/namespaces/{}/jobs/{}/tags/".format(*(quote(name, safe="") for name in names))
        for tag in (*one.done, *wanted):
            if self._backend is None or (tag in one.done) == (tag in wanted):
                continue
            answer = self._backend.request("POST" if tag in wanted else "DELETE", path + quote(tag, safe=""))
            is_gone = answer.status == _GONE and tag not in wanted
            if answer.verdict is not Verdict.DELIVERED and not is_gone:
                return answer
            one.done = tuple(done for done in one.done if done != tag) + ((tag,) if tag in wanted else ())
        one.done = wanted
        return None


_ROW: Final = msgspec.json.Decoder(_Tagged)
