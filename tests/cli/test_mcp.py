"""Questions from a language model: the package's own client starts the command, as such programs do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from served import without_runner

from waybill.collector import Keys as ApiKeys, Role
from waybill.exporter.keys import Keys
from waybill.exporter.query import CONDITIONS, TailReader
from waybill.lineage.answers import HomeAnswers
from waybill.lineage.tools import list_tools
from waybill.transport import Journal, Kind, Settings

mcp = pytest.importorskip("mcp", reason="needs the extra mcp")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Kept

TOOLS = ["find", "trace", "lineage", "impact", "origins", "search", "slis"]


def ask(
    script: Path, calls: list[tuple[str, dict[str, Any]]], *arguments: object, key: str = ""
) -> tuple[list[Any], list[tuple[str, bool]]]:
    """The tools that a server offers, and the text of each answer with whether it is an error."""
    words = ["mcp", *map(str, arguments)]
    environment = {**os.environ, "OPENLINEAGE_API_KEY": key}
    server = mcp.StdioServerParameters(command=str(script), args=words, env=environment)

    async def talk() -> tuple[list[Any], list[tuple[str, bool]]]:
        async with mcp.Client(server, read_timeout_seconds=60) as client:
            tools = (await client.list_tools()).tools
            answers = [await client.call_tool(name, given) for name, given in calls]
        return tools, [(one.content[0].text, bool(one.is_error)) for one in answers]

    return asyncio.run(talk())


def test_a_model_asks_a_home_and_is_told_why_something_cannot_be_asked(kept: Kept, script: Path) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("find", {"data_source": "halves", "final_state": ["ERROR"]}),
        ("find", {"annotation": ["customer=acme=1"], "limit": 1}),
        ("trace", {"did": kept.year}),
        ("impact", {"name": "lake"}),
        ("search", {"text": "lake"}),
        ("slis", {}),
    ]
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("find", {"colour": "red"}, "colour"),
        ("find", {"limit": 0}, "limit"),
        ("find", {"created_since": "soon"}, "created"),
        ("trace", {"did": "nobody"}, "nobody"),
        ("trace", {"did": 7}, "did"),
        ("trace", {}, "did"),
        ("impact", {"name": "nothing-of-the-kind"}, "nothing-of-the-kind"),
        ("impact", {"name": "lake", "to": "all"}, "to"),
        ("drop", {}, "no tool drop"),
    ]
    calls = [*asked, *(call[:2] for call in refused)]
    tools, answers = ask(script, calls, "--home", kept.home)
    assert [one.name for one in tools] == TOOLS
    assert all(one.annotations.read_only_hint for one in tools)
    assert {one.parameter for one in CONDITIONS} < tools[0].input_schema["properties"].keys()
    assert [is_error for _, is_error in answers] == [False] * len(asked) + [True] * len(refused), answers
    found = [json.loads(text)["answer"] for text, _ in answers[: len(asked)]]
    failed, annotated, journey, impact, hits, levels = found
    assert [one["did"] for one in failed] == [kept.second]
    assert len(annotated) == 1
    assert {one["did"] for one in journey["files"]} == {kept.year, kept.first, kept.second}
    assert impact["node"]["name"] == "lake"
    assert "lake" in {one["node"]["name"] for one in hits["nodes"]}
    assert {"coverage", "unauthorised_access"} <= {one["sli"] for one in levels["levels"]}
    texts = [text for text, _ in answers[len(asked) :]]
    assert [word for (_, _, word), text in zip(refused, texts, strict=True) if word not in text] == []


def test_a_model_is_told_the_job_of_a_run(settings: Settings, journal: Journal) -> None:
    runs = Path(__file__).parent / "snapshots" / "runs.jsonl"
    journal.append_many((Kind.OPENLINEAGE, line, "") for line in runs.read_bytes().splitlines())
    ask = {tool.name: tool.ask for tool in list_tools()}
    with contextlib.closing(Journal(settings.home, to_read=True)) as reading:
        answers = HomeAnswers(reading, settings, TailReader(reading), Keys())
        failed = msgspec.to_builtins(ask["find"](answers, {"final_state": ["ERROR"]}))[0]
        journey = msgspec.to_builtins(ask["trace"](answers, {"did": failed["did"]}))
    assert (failed["job"], [*failed["inputs"]]) == ("dbt.shop.daily_totals", ["lake/orders", "lake/rates"])
    assert journey["files"][0]["run"]["job"] == failed["job"]


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The address of a collector that needs keys, and a key of each role."""
    home = tmp_path / "home"
    journal = Journal(home)
    made = {role.value: ApiKeys(journal).add(role.value, [role]) for role in Role}
    journal.close()
    with without_runner(home, "--provenance-enabled") as collector:
        yield made | {"url": collector.url}


def test_a_collector_decides_by_the_key(keys: dict[str, str], script: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("find", {}), ("slis", {})]
    _, answers = ask(script, calls, "--collector", keys["url"], key=keys["read"])
    assert [is_error for _, is_error in answers] == [False, False], answers
    assert json.loads(answers[0][0]) == {"answer": [], "notes": []}
    _, answers = ask(script, calls, "--collector", keys["url"], key=keys["emit"])
    assert [is_error for _, is_error in answers] == [True, True]
    assert not any(keys["emit"] in text for text, _ in answers)
