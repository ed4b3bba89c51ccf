"""Records and events of years that nobody means, such as 9999 for no end: each view and question answers."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import pytest
from events import event
from inside import Inside
from read_pages import HTML
from served import record
from typer.testing import CliRunner

from waybill.cli.app import app
from waybill.transport import Settings, flush

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER_MS: Final = 253_402_300_799_000
"""9999-12-31T23:59:59Z."""
TODAY: Final = "01a1fd6a-9e75-7d78-870f-000000000001"
NEVER: Final = "01a1fd6a-9e75-7d78-870f-000000000002"
FIRST: Final = "01a1fd6a-9e75-7d78-870f-000000000003"


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """A collector with a record of today, one of the year 9999 and one of 1970, and an event of each."""
    home = tmp_path_factory.mktemp("far") / "home"
    now_ms = time.time_ns() // 1_000_000
    with contextlib.closing(Inside(home, provenance_enabled=True)) as one:
        sent = [
            record(did=TODAY, filename="today.csv", created=now_ms, completed=now_ms),
            record(did=NEVER, filename="never.csv", created=now_ms, completed=NEVER_MS, parentDid=TODAY),
            record(did=FIRST, filename="first.csv", created=86_400_000, completed=86_400_000),
        ]
        assert one.post("/provenance", json.dumps(sent).encode()).status == 202
        for at, text in enumerate(("1970-01-02T00:00:00Z", "2026-01-31T12:00:00Z", "9999-12-31T23:59:59Z")):
            for kind in ("START", "COMPLETE"):
                body = event(f"run-{at}", kind, text, job="etl/far", inputs=["lake/a"], outputs=["lake/b"])
                assert one.post("/api/v1/lineage", body).status == 201
        flush(Settings.load({"home": home, "provenance_enabled": True}, env={}))
        yield one


def at(path: str, **params: object) -> str:
    return f"{path}?{urlencode(params)}" if params else path


ASKED: Final = (
    *("/", "/find", "/find.json", "/find.csv", "/find.svg", "/open", "/slis", "/health"),
    *(at("/find", final_state="COMPLETE"), at("/find", to=NEVER_MS), at("/search", q="a")),
    *(at(f"/file{ending}", did=NEVER) for ending in ("", ".json", ".csv", ".svg")),
    at("/file", did=NEVER, proof="true"),
    *(at("/dataset", node="lake/b"), at("/job", node="etl/far"), at("/dataset.json", node="lake/b")),
    *("/provenance/query", "/provenance/stats", "/api/v1/records", "/api/v1/records/stats"),
    at("/api/v1/records", filename="never.csv"),
    at(f"/trace/{NEVER}"),
)
COMMANDS: Final = (
    *(("find",), ("find", "--json"), ("find", "--csv"), ("find", "--since", "1d"), ("trace", NEVER)),
    *(
        ("explain", NEVER),
        ("lineage", "etl/far"),
        ("impact", "lake/a"),
        ("status",),
        ("compact",),
        ("verify",),
    ),
    ("sql", "SELECT max(completed) FROM provenance"),
    ("close-stale", "--older-than", "1d", "--as", "ERROR"),
)


@pytest.mark.parametrize("address", ASKED)
def test_each_view_and_question_answers_beside_the_year_9999(far: Inside, address: str) -> None:
    answer = far.get(address, headers=HTML if "." not in address else None)
    assert answer.status == 200, answer.body[:300]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_answers_beside_the_year_9999(far: Inside, command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "--home", str(far.home)])
    assert done.exit_code == 0, done.output


def test_bars_reach_the_last_year_and_lead_to_its_records(far: Inside) -> None:
    page = far.get("/find", HTML).body.decode()
    assert "6 records" in page
    assert "9999-12-31 23:59:59" in page  # where the last bar ends
    spans = json.loads(far.get("/find.json").body)["counts"]["spans"]
    assert sum(span["records"] for span in spans) == 6
    asked = at("/api/v1/records", **{"from": spans[-1]["since_ms"], "to": spans[-1]["until_ms"] - 1})
    assert {one["did"] for one in json.loads(far.get(asked).body)} == {NEVER, "run-2"}
