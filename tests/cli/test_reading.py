"""Every read passes `waybill.exporter.reading.allow`, given who asks: the doors, one by one."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from asked import request_for

import waybill
from waybill.collector.app import endpoints_of
from waybill.collector.endpoints import ProvenanceEndpoints, Readings, TraceEndpoints
from waybill.collector.keys import Role
from waybill.collector.page import HealthOfHome, LevelsOfHome, page_endpoints
from waybill.exporter import reading
from waybill.lineage.graph import QUESTIONS
from waybill.transport import Journal, WaybillError
from waybill.transport.config import obey

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Kept, Run

KEY = "night shift"

COMMANDS = {
    "find": (),
    "find --open": (),
    "find --count": (),
    "trace": ("DID",),
    "lineage": ("lake",),
    "impact": ("lake",),
    "origins": ("lake.total",),
    "datasets --orphan": (),
    "datasets --stale 1d": (),
    "datasets --duplicate-producers": (),
    "slis": (),
    "search": ("lake",),
    "alias": ("lake", "pond"),
    "diff": ("DID", "DID"),
    "explain": ("DID",),
    "sql": ("SELECT 1",),
    "duplicates": (),
}
PYTHON: dict[str, Callable[[Kept], object]] = {
    "waybill.find": lambda kept: waybill.find(kept.home),
    "Lineage.find": lambda kept: waybill.Lineage.open(kept.home).find(),
    "Lineage.stats": lambda kept: waybill.Lineage.open(kept.home).stats(),
    "Lineage.count": lambda kept: waybill.Lineage.open(kept.home).count(),
    "Lineage.duplicates": lambda kept: waybill.Lineage.open(kept.home).duplicates(),
    "Lineage.dependencies": lambda kept: waybill.Lineage.open(kept.home).dependencies("lake"),
    "Lineage.impact": lambda kept: waybill.Lineage.open(kept.home).impact("lake"),
    "Lineage.origins": lambda kept: waybill.Lineage.open(kept.home).origins("lake.total"),
    "Lineage.unused_datasets": lambda kept: waybill.Lineage.open(kept.home).unused_datasets(),
    "Lineage.stale_datasets": lambda kept: waybill.Lineage.open(kept.home).stale_datasets(1),
    "Lineage.duplicate_producers": lambda kept: waybill.Lineage.open(kept.home).duplicate_producers(),
    "Lineage.recent_runs": lambda kept: waybill.Lineage.open(kept.home).recent_runs(),
    "Lineage.schema_changes": lambda kept: waybill.Lineage.open(kept.home).schema_changes(),
    "Lineage.names": lambda kept: waybill.Lineage.open(kept.home).names("lake"),
    "Lineage.diff": lambda kept: waybill.Lineage.open(kept.home).diff(kept.first, kept.first),
    "Lineage.search": lambda kept: waybill.Lineage.open(kept.home).search("lake"),
    "Lineage.trace": lambda kept: waybill.Lineage.open(kept.home).trace(kept.first),
}
NO_RECORDS = {"/metrics", "/where", "/health", "/health.json", "/health.csv"}
"""What can be read over HTTP without any record."""


class RefusedError(WaybillError):
    """The policy of these tests."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[reading.Asker]:
    """Who asked; every question is refused."""
    seen: list[reading.Asker] = []

    def refuse(asker: reading.Asker, question: object) -> object:
        seen.append(asker)
        raise RefusedError(f"not for {asker.name}: {question}")

    monkeypatch.setattr(reading, "allow", refuse)
    return seen


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_asks_in_the_name_of_the_system_s_user(
    called: Run, kept: Kept, asked: list[reading.Asker], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    words = [kept.first if word == "DID" else word for word in COMMANDS[command]]
    done = called(*command.split(), *words, "--home", kept.home)
    assert (done.returncode, done.stdout, "not for ada" in done.stderr) == (1, "", True), done.stderr
    assert asked == [(reading.Door.COMMAND, "ada")]


@pytest.mark.parametrize("door", PYTHON)
def test_python_asks_in_its_own_name(kept: Kept, asked: list[reading.Asker], door: str) -> None:
    with pytest.raises(RefusedError):
        PYTHON[door](kept)
    assert asked == [reading.PYTHON]


def test_http_asks_in_the_name_of_the_key(kept: Kept, asked: list[reading.Asker]) -> None:
    unused = cast("Any", None)
    with contextlib.closing(Journal(kept.home)) as journal:
        settings = obey(journal)
        readings = Readings(journal, settings)
        provenance = ProvenanceEndpoints(unused, unused, journal, settings, readings)
        endpoints = endpoints_of(
            provenance,
            TraceEndpoints(readings),
            cast("Any", SimpleNamespace(live=None, ready=None, metrics=None, where=None)),
        ) + page_endpoints(
            readings,
            cast("Any", SimpleNamespace(front=SimpleNamespace(path=""))),
            unused,
            HealthOfHome(journal, settings, unused, list),
            LevelsOfHome(journal, settings),
            ensure_runner=unused,
        )
        doors = {
            one.path: one.answer for one in endpoints if one.role is Role.READ and one.path not in NO_RECORDS
        }
        assert {"/", "/find", "/find.json", "/find.csv", "/slis"} < doors.keys()
        assert {"/provenance/query", "/provenance/stats", "/trace/{did}"} < doors.keys()
        asked_of = {
            one.path: "&".join(f"{field.name}=1" for field in msgspec.structs.fields(one) if field.required)
            for one in QUESTIONS
        } | {"/search": "q=1", "/file": f"did={kept.first}", "/column": "node=1&column=1"}
        asked_of |= dict.fromkeys(("/dataset", "/job"), "node=1")
        for path, answer in doors.items():
            request = request_for(
                path, asked_of.get(path.partition(".")[0], ""), KEY, number="1", did=kept.first
            )
            with pytest.raises(RefusedError):
                asyncio.run(cast("Any", answer(request)))
    assert asked == [(reading.Door.HTTP, KEY)] * len(doors)


def test_every_question_is_allowed_so_far_as_it_is() -> None:
    question = waybill.Query(did="a", limit=3)
    for asker in (reading.PYTHON, reading.os_user(), reading.Asker(reading.Door.HTTP, "")):
        assert reading.allow(asker, question) is question
