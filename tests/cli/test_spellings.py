"""A UUID in capitals and in small letters is one id: a run begun in one and ended in the other is one run."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from conftest import Run

ID = "01a1fd6a-9e75-7d78-870f-0000000004{}"
RUN, CHILD, WHOLE, PART = (ID.format(end) for end in ("aa", "bb", "c0", "c1"))


def event(run: str, kind: str, minute: int, **more: object) -> bytes:
    whole = {
        "eventType": kind,
        "eventTime": f"2026-01-31T12:0{minute}:00Z",
        "producer": "https://example.com/tool",
        "job": {"namespace": "n", "name": "load"},
        "run": {"runId": run, "facets": more.pop("facets", {})},
    }
    return json.dumps(whole | more).encode()


def sent(did: str, **more: str) -> dict[str, object]:
    return {"did": did, "systemName": "s", "finalState": "COMPLETE", "created": 1, "completed": 2, **more}


@pytest.fixture
def told(home: Path) -> Path:
    """A home with events and records whose ids are in capitals where they are said first."""
    parent = {"parent": {"run": {"runId": RUN.upper()}, "job": {"namespace": "n", "name": "load"}}}
    records = [
        sent(WHOLE.upper(), filename="up.csv"),
        sent(PART, parentDid=WHOLE, filename="part.csv"),
    ]
    events = [
        event(RUN.upper(), "START", 0, inputs=[{"namespace": "sftp", "name": "in.csv"}]),
        event(RUN, "COMPLETE", 1, outputs=[{"namespace": "lake", "name": "out"}]),
        event(CHILD, "COMPLETE", 2, facets=parent),
    ]
    with contextlib.closing(Journal(home)) as journal:
        journal.append_many([(Kind.OPENLINEAGE, body, "") for body in events])
        journal.append_many([(Kind.PROVENANCE, json.dumps(records).encode(), "")])
    return home


@pytest.mark.parametrize("is_filed", [False, True])
def test_a_run_a_parent_and_a_did_are_found_in_any_spelling(
    called: Run, told: Path, *, is_filed: bool
) -> None:
    at = ("--home", told)
    if is_filed:
        assert called("flush", *at, "--provenance-enabled").returncode == 0
    (run,) = called("find", "--filename", "in.csv", "--json", *at).stdout.splitlines()
    assert [json.loads(run)[name] for name in ("did", "data_sink", "final_state")] == [
        RUN,
        "lake/out",
        "COMPLETE",
    ]
    assert called("find", "--open", "--json", *at).stdout == ""
    for spell in (str.lower, str.upper, lambda did: did.replace("-", "")):
        (child,) = called("find", "--parent", spell(RUN), "--json", *at).stdout.splitlines()
        (whole,) = called("find", "--did", spell(WHOLE), "--json", *at).stdout.splitlines()
        assert [json.loads(one)["did"] for one in (child, whole)] == [CHILD, WHOLE]
    assert called("trace", "part.csv", *at).stdout.startswith("up.csv")
