"""What dead letters, poison and rejects have in common: verbs, options, output and exit codes."""

from __future__ import annotations

import csv
import io
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
import typer
from letters import letter, row_of

from waybill.cli.app import app
from waybill.transport import Journal, Kind, Rejects
from waybill.transport.config import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run
    from typer.core import TyperGroup

    from waybill.cli.commanding import Deferred

KINDS: Final = ("dead-letters", "poison", "rejects")
NAMING: Final = {"dead-letters": ("seq", "backend"), "poison": ("seq", "projection"), "rejects": ("id",)}
"""The fields that tell an item from others."""


@pytest.fixture
def home(home: Path) -> Path:
    """A home with several items of each kind; two of the same number, of two backends or projections."""
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, b'{"number":%d}' % number, "") for number in (1, 2))
        for seq, owner in ((1, "layout"), (2, "archive"), (2, "layout")):
            journal.poison.set_aside(owner, seq, "it is odd")
        for seq, owner in ((1, "marquez"), (2, "marquez"), (2, "other")):
            told = letter(seq, backend=owner, reason="it is odd", size_bytes=2)
            rows = row_of(told) | {f"body:{seq}": b'{"number":%d}' % seq}
            journal.commit(owner, cursor=2, put=rows)
        Rejects(journal).add(Kind.OPENLINEAGE, [(b'{"number":%d}' % at, "it is odd") for at in (1, 2, 3)])
    return home


def listed(called: Run, kind: str, home: Path, *options: str) -> list[dict[str, Any]]:
    done = called(kind, "list", "--json", "--home", home, *options)
    return [json.loads(line) for line in done.stdout.splitlines()]


def keys(kind: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: item[name] for name in NAMING[kind]} for item in items]


def test_each_kind_has_the_same_verbs_and_options() -> None:
    commands = cast("TyperGroup", typer.main.get_command(app)).commands
    verbs: dict[str, list[set[str]]] = {"list": [], "show": [], "retry": [], "drop": []}
    for kind in KINDS:
        group = cast("TyperGroup", cast("Deferred", commands[kind]).loaded)
        assert list(group.commands) == list(verbs)
        for verb, options in verbs.items():
            given = {name for param in group.commands[verb].params for name in param.opts}
            options.append(given - {"--backend", "--projection"} - {f"--{name}" for name in SETTINGS})
    common = {verb: set.intersection(*options) for verb, options in verbs.items()}
    assert common["drop"] >= {"--all", "--dry-run", "--json", "--yes"}
    assert common["retry"] >= {"--all", "--dry-run", "--json"}
    for verb in ("list", "show", "drop"):
        assert verbs[verb] == [common[verb]] * len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_listed_with_when_and_why_it_was_set_aside(called: Run, home: Path, kind: str) -> None:
    items = listed(called, kind, home)
    assert [item["reason"] for item in items] == ["it is odd"] * 3
    heads, *rows = csv.reader(io.StringIO(called(kind, "list", "--csv", "--home", home).stdout))
    assert set(heads) > {*NAMING[kind], "set aside (UTC)", "reason"}
    for item, row in zip(items, rows, strict=True):
        cells = dict(zip(heads, row, strict=True))
        assert cells["set aside (UTC)"] == item["set_aside"]
        assert [cells[name] for name in NAMING[kind]] == [str(item[name]) for name in NAMING[kind]]


@pytest.mark.parametrize("kind", KINDS)
def test_one_is_shown_with_the_reason_beside_it(called: Run, home: Path, kind: str) -> None:
    item = listed(called, kind, home)[0]
    shown = called(kind, "show", str(item[NAMING[kind][0]]), "--home", home)
    assert json.loads(shown.stdout)["number"] in {1, 2, 3}
    name = " of ".join(str(item[name]) for name in NAMING[kind])
    assert shown.stderr == f"{name}: it is odd\n"
    as_json = json.loads(called(kind, "show", str(item[NAMING[kind][0]]), "--json", "--home", home).stdout)
    assert as_json == item | {"body": shown.stdout.removesuffix("\n")}


@pytest.mark.parametrize(
    ("kind", "option"), [("dead-letters", "--backend=other"), ("poison", "--projection=archive")]
)
def test_an_option_chooses_those_of_one(called: Run, home: Path, kind: str, option: str) -> None:
    (chosen,) = keys(kind, listed(called, kind, home, option))
    assert set(chosen.values()) & {"other", "archive"}
    dropped = called(kind, "drop", "2", option, "--yes", "--json", "--home", home)
    assert json.loads(dropped.stdout) == {"dropped": [chosen]}
    assert len(listed(called, kind, home)) == 2


@pytest.mark.parametrize("verb", ["retry", "drop"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_lists_the_chosen_ones_and_changes_nothing(
    called: Run, home: Path, kind: str, verb: str
) -> None:
    before = listed(called, kind, home)
    done = "retried" if verb == "retry" else "dropped"
    told = called(kind, verb, "--all", "--dry-run", "--home", home)
    assert (told.returncode, told.stderr) == (0, f"3 would be {done}\n")
    assert told.stdout == called(kind, "list", "--home", home).stdout
    told = called(kind, verb, "--all", "--dry-run", "--json", "--home", home)
    assert json.loads(told.stdout) == {f"would_be_{done}": keys(kind, before)}
    assert listed(called, kind, home) == before


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_dropped_only_when_the_user_says_so(called: Run, home: Path, kind: str) -> None:
    before = listed(called, kind, home)
    assert called(kind, "drop", "--all", "--home", home).returncode == 1
    assert listed(called, kind, home) == before
    done = called(kind, "drop", "--all", "--yes", "--json", "--home", home)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"dropped": keys(kind, before)})
    done = called(kind, "list", "--home", home)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("there are no ")


@pytest.mark.parametrize("verb", ["retry", "drop"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_are_chosen_only_explicitly_and_unknown_ids_are_refused(
    called: Run, home: Path, kind: str, verb: str
) -> None:
    before = listed(called, kind, home)
    known = str(before[0][NAMING[kind][0]])
    for arguments in ((), (known, "--all")):
        assert called(kind, verb, *arguments, "--home", home).returncode == 2
    unknown = called(kind, verb, known, "4711", "--home", home)
    assert unknown.returncode == 2
    assert "waybill: 4711: no such " in unknown.stderr
    assert f"; `waybill {kind} list` shows them\n" in unknown.stderr
    assert listed(called, kind, home) == before
