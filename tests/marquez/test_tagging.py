"""The tags of jobs, which Marquez takes by requests of their own: the same on a real Marquez."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest
import requests
from delivering import event as event_of, facet, shown

from waybill.facets.flows import FlowNode
from waybill.facets.standard import JobNotes, Tag
from waybill.marquez.backend import Answer, Backend, Verdict
from waybill.marquez.delivery.tagging import AGAIN_AFTER_S, Tagging
from waybill.transport import Kind

if TYPE_CHECKING:
    from delivering import Site


def file(system: str, *tags: str, kind: str = "COMPLETE", run: str = "", parent: str = "") -> bytes:
    """An event of a file that passed the transform `load`, with tags as `key` or `key:value`."""
    listed = [
        {"key": key, "value": value or "true"} for key, _, value in (tag.partition(":") for tag in tags)
    ]
    told = {"did": "d", "systemName": system, "dataSource": "orders", "transforms": ["load"]}
    facets = {"waybill_deltaFile": facet("WaybillDeltaFileRunFacet", **told)}
    if parent:
        job = {"namespace": system, "name": parent}
        facets["parent"] = facet("ParentRunFacet", run={"runId": str(uuid.uuid4())}, job=job)
    of_job = {"tags": facet("TagsJobFacet", tags=listed)} if tags else {}
    return event_of(
        "",
        eventType=kind,
        run={"runId": run or str(uuid.uuid4()), "facets": facets},
        job={"namespace": system, "name": "orders", "facets": of_job},
        inputs=[{"namespace": system, "name": "orders"}],
    )


def tags(url: str, system: str, job: str) -> list[str]:
    return sorted(shown(url, "jobs", system, job)["tags"])


def test_the_jobs_of_a_flow_have_the_tags_of_its_events(site: Site, system: str) -> None:
    """A value that is no text is taken as it is written: a client sends what its YAML says."""
    event = json.loads(file(system, "tier:gold", "who:Ann & Bob/ü", "pii", "level", "done"))
    for tag, value in zip(event["job"]["facets"]["tags"]["tags"][2:], (True, 2, False), strict=True):
        tag["value"] = value
    site.journal.append(Kind.OPENLINEAGE, json.dumps(event).encode())
    site.deliver(draws=True)
    for job in ("orders", "load · orders"):
        assert tags(site.url, system, job) == ["done:false", "level:2", "pii", "tier:gold", "who:Ann & Bob/ü"]


def test_tags_of_others_stay_and_only_its_own_are_removed(site: Site, system: str) -> None:
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:gold", "pii"))
    worker = site.deliver(draws=True)
    others = f"{site.url}/api/v1/namespaces/{system}/jobs/orders/tags/by-hand"
    assert requests.post(others, timeout=60).status_code == 200
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:silver", "pii"))
    worker.run()
    assert tags(site.url, system, "orders") == ["by-hand", "pii", "tier:silver"]
    site.journal.append(Kind.OPENLINEAGE, file(system))
    worker.run()
    assert tags(site.url, system, "orders") == ["by-hand", "pii", "tier:silver"], (
        "it said nothing about the job"
    )


def test_what_was_set_is_not_set_again_after_a_restart(site: Site, system: str) -> None:
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:gold"))
    site.deliver(draws=True)
    assert len(site.marquez.changes) == 2
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:gold"))
    site.deliver(draws=True)
    assert len(site.marquez.changes) == 2
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:silver"))
    site.deliver(draws=True)
    (removed,) = [one for one in site.marquez.changes if one.startswith("DELETE")]
    assert removed.endswith("/jobs/orders/tags/tier%3Agold"), "the next runner knows of it"


def test_the_job_of_files_with_a_parent_is_tagged_from_its_first_start_on(site: Site, system: str) -> None:
    run = str(uuid.uuid4())
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:gold", kind="START", run=run, parent="years"))
    worker = site.deliver(draws=True)
    assert tags(site.url, system, "years.orders") == ["tier:gold"]
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:gold", run=run, parent="years"))
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:gold", kind="START", parent="years"))
    worker.run()
    assert tags(site.url, system, "years.orders") == ["tier:gold"]


@pytest.mark.parametrize("fault", ["500", "close"])
def test_a_tag_that_is_not_taken_holds_up_no_event_and_is_set_later(
    site: Site, system: str, fault: str
) -> None:
    site.marquez.fault_of = lambda body: None if body else fault
    site.journal.append(Kind.OPENLINEAGE, file(system, "tier:gold"))
    worker = site.deliver(draws=True, at_most_s=AGAIN_AFTER_S / 2)
    assert (worker.delivery.pending(), worker.problem) == (0, None)
    site.marquez.fault_of = None
    assert tags(site.url, system, "orders") == []
    worker.run()
    assert tags(site.url, system, "orders") == ["tier:gold"]


class Asked(Backend):
    """A backend that takes every tag."""

    def __init__(self) -> None:
        super().__init__("http://backend")
        self.requests: list[str] = []

    def request(self, method: str, path: str) -> Answer:
        self.requests.append(f"{method} {path}")
        return Answer(verdict=Verdict.DELIVERED)


def test_emitters_that_disagree_are_followed_once_a_minute() -> None:
    backend = Asked()
    tagging = Tagging({}, backend)
    for second in range(180):
        tagging.want(FlowNode("ns", "job"), JobNotes(tags=(Tag("team", str(second % 2)),)))
        if tagging.due_s(float(second)) == 0.0:
            tagging.tag_next(float(second))
    assert len(backend.requests) <= 6


def test_no_request_can_name_anything_but_a_tag() -> None:
    backend = Asked()
    tagging = Tagging({}, backend)
    odd = JobNotes(tags=(Tag(".."), Tag("."), Tag(" "), Tag(""), Tag("a/../b?c#d")))
    for job in (FlowNode("ns", ".."), FlowNode("my ns;", "a/b")):
        tagging.want(job, odd)
    assert tagging.due_s(0.0) == 0.0
    tagging.tag_next(0.0)
    assert tagging.due_s(0.0) is None
    assert backend.requests == ["POST /api/v1/namespaces/my_ns_/jobs/a%2Fb/tags/a%2F..%2Fb%3Fc%23d"]
