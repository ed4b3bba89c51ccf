"""Every condition of the one table can be given by every way of asking, and each gives the same files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import pytest
from served import COMPLETED_MS, Collector, event, record, without_runner
from typer.testing import CliRunner

from waybill.cli.app import app
from waybill.exporter import Query
from waybill.exporter.query import CONDITIONS, Condition, ConditionKind
from waybill.lineage import Lineage
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.config import agree

DAY_MS: Final = 86_400_000
BETWEEN_MS: Final = COMPLETED_MS - DAY_MS * 3 // 2
FIRST, CHILD = (f"01a1fd6a-9e75-7d78-870f-00000000000{digit}" for digit in "12")
RUN: Final = "run-of-spark"

GIVEN: Final[dict[str, tuple[object, set[str]]]] = {
    "did": (FIRST, {FIRST}),
    "parent_did": (FIRST, {CHILD}),
    "data_source": ("sftp*", {FIRST}),
    "data_sink": ("lake", {FIRST}),
    "not_data_sinks": (("lake", "report"), {CHILD, RUN}),
    "has_data_sink": (False, {CHILD, RUN}),
    "missing_sink": ("lake", {CHILD, RUN}),
    "system_name": ("edge", {FIRST}),
    "filename": ("orders*", {FIRST}),
    "final_state": (("ERROR", "SPLIT"), {CHILD}),
    "not_final_states": (("ERROR", "SPLIT"), {FIRST, RUN}),
    "input_dataset": ("right", {RUN}),
    "producer": ("https://example.org/spark", {RUN}),
    "annotations": ({"customer": "acme", "year": "2026"}, {FIRST}),
    "since_ms": (BETWEEN_MS, {FIRST, RUN}),
    "until_ms": (BETWEEN_MS, {CHILD}),
    "created_since_ms": (BETWEEN_MS, {FIRST, RUN}),
    "created_until_ms": (BETWEEN_MS, {CHILD}),
}
"""By field, a value, and the files that meet it."""


class Place(NamedTuple):
    """A home, and a collector of it."""

    home: Path
    collector: Collector

    def get(self, path: str, params: list[tuple[str, str]]) -> Any:  # noqa: ANN401 - the JSON of a reply
        reply = self.collector.get(f"{path}?{urlencode(params)}")
        assert reply.status == 200, reply.body
        return reply.json


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("conditions") / "home"
    given = {
        "home": home,
        "provenance_annotations_allowed": "*",
        "provenance_enabled": True,
        "runner": "none",
    }
    settings = Settings.load(given, origin="tests", env={}, cwd=home.parent)
    at_ms = COMPLETED_MS - DAY_MS
    annotations = {"customer": "acme", "year": "2026", "dt=day": "2026-01-31", "sum": "a=b", "note": ""}
    first = record(did=FIRST, created=at_ms, completed=at_ms, annotations=annotations)
    child = record(
        did=CHILD,
        parentDid=FIRST,
        systemName="core",
        dataSource="halves",
        dataSink="",
        filename="half.csv",
        finalState="ERROR",
        created=at_ms - DAY_MS,
        completed=at_ms - DAY_MS,
    )
    inputs = [{"namespace": "file", "name": f"/in/{name}"} for name in ("left", "right")]
    run = event(eventType="COMPLETE", run={"runId": RUN}, inputs=inputs, producer="https://example.org/spark")
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, settings)
        body = json.dumps([first, child]).encode()
        journal.append_many([(Kind.PROVENANCE, body, ""), (Kind.OPENLINEAGE, run, "")])
    assert flush(settings).left == {}
    with without_runner(home) as collector:
        yield Place(home, collector)


def words_of(condition: Condition, value: object) -> Iterator[str]:
    """The words of a command that give a condition."""
    texts = [str(value)] if isinstance(value, int) else condition.tell(value)
    for text in texts:
        yield f"--{condition.option}"
        if condition.kind is not ConditionKind.IS_ABSENT:
            yield text


def found_by_command(place: Place, words: Iterator[str]) -> set[str]:
    done = CliRunner().invoke(app, ["find", *words, "--json", "--home", str(place.home)])
    assert done.exit_code == 0, done.stderr
    return {json.loads(line)["did"] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.field)
def test_every_condition_is_asked_by_every_door_alike(place: Place, condition: Condition) -> None:
    value, dids = GIVEN[condition.field]
    assert found_by_command(place, words_of(condition, value)) == dids
    over_http = [(condition.parameter, text) for text in condition.tell(value)]
    assert {one["did"] for one in place.get("/api/v1/records", over_http)} == dids
    query = Query(**{condition.field: value})  # type: ignore[arg-type]
    for asked in (str(place.home), place.collector.url):
        assert {one.did for one in Lineage.open(asked).find(query)} == dids


@pytest.mark.parametrize(
    ("text", "dids"),
    [
        ("dt=day=2026-01-31", {FIRST}),
        ("sum=a=b", {FIRST}),
        ("note=", {FIRST}),
        ("dt=day=2026-01-3", set()),
        ("sum=a", set()),
        ("customer=", set()),
    ],
)
def test_an_annotation_is_split_at_the_sign_at_which_a_record_has_it(
    place: Place, text: str, dids: set[str]
) -> None:
    assert found_by_command(place, iter(["--annotation", text])) == dids
    assert {one["did"] for one in place.get("/api/v1/records", [("annotation", text)])} == dids
    key, _, value = text.partition("=")
    for asked in (str(place.home), place.collector.url):
        assert {one.did for one in Lineage.open(asked).find(Query(annotations={key: value}))} == dids
    pair = [("annotation_key", key), ("annotation_value", value)]
    assert {one["did"] for one in place.get("/api/v1/records", pair)} == dids


@pytest.mark.parametrize(
    "condition", [one for one in CONDITIONS if one.deltafi], ids=lambda condition: condition.field
)
def test_deltafi_s_names_ask_as_they_do_in_deltafi(place: Place, condition: Condition) -> None:
    value, dids = ({"customer": "acme"}, {FIRST}) if len(condition.deltafi) > 1 else GIVEN[condition.field]
    pairs = [text.split("=") if len(condition.deltafi) > 1 else [text] for text in condition.tell(value)]
    params = [pair for texts in pairs for pair in zip(condition.deltafi, texts, strict=True)]
    assert {one["did"] for one in place.get("/provenance/query", params)} == dids
