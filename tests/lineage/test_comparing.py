"""In which two runs differ, by the events that are stored, wherever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from events import members
from keeping import index, keep, keep_filed

from waybill.lineage import Lineage
from waybill.transport import NotFoundError, Settings

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = (f"01a1fd6a-9e75-7d78-870f-00000000000{number}" for number in (1, 2))


def ran(
    run: str,
    sql: str,
    at: str = "2026-01-31T12:00:00Z",
    owner: str = "ada",
    **others: Any,  # noqa: ANN401 - any JSON value
) -> dict[str, Any]:
    facets = {"sql": {"query": sql}, "ownership": {"owners": [{"name": owner}]}}
    job = {"namespace": "etl", "name": "daily", "facets": facets}
    return members(run, at=at, job=job, **others)


def lake(name: str, owner: str | None = None, **types: str) -> dict[str, object]:
    facets: dict[str, object] = {
        "schema": {"fields": [{"name": key, "type": of} for key, of in types.items()]}
    }
    if owner is not None:
        facets["ownership"] = {"owners": [{"name": owner}]}
    return {"namespace": "lake", "name": name, "facets": facets}


@pytest.mark.parametrize("filed", [0, 1, 3])
def test_runs_differ_in_what_their_last_events_say(settings: Settings, filed: int) -> None:
    told = [
        ran(
            FIRST,
            "SELECT 1",
            inputs=[lake("a", "eve", id="int", day="date"), lake("b")],
            outputs=["lake/out"],
        ),
        ran(SECOND, "SELECT 0", "2026-02-01T12:00:00Z", inputs=[lake("a", "eve", id="string")]),
        ran(
            SECOND.upper(),
            "SELECT 2",
            "2026-02-01T13:00:00Z",
            "bob",
            inputs=[lake("a", "mal", id="bigint", hour="int"), lake("c", x="int")],
            outputs=["lake/out"],
        ),
    ]
    lineage = keep_filed(settings, told, filed)
    found = lineage.diff(FIRST, SECOND.replace("-", ""))
    assert (found.first, found.second) == (FIRST, SECOND)
    assert [(one.what, one.of, one.first, one.second) for one in found.differences] == [
        ("owner", "etl/daily", "ada", "bob"),
        ("sql", "etl/daily", "SELECT 1", "SELECT 2"),
        ("input", "lake/b", "lake/b", None),
        ("input", "lake/c", None, "lake/c"),
        ("column", "lake/a.day", "date", None),
        ("column", "lake/a.hour", None, "int"),
        ("column", "lake/a.id", "int", "bigint"),
        ("owner", "lake/a", "eve", "mal"),
    ]
    assert lineage.diff(FIRST, FIRST).differences == ()
    if filed == 3:  # the root alone has the archive
        index(settings)
        assert Lineage.open(settings.root).diff(FIRST, SECOND) == found


def test_a_run_of_which_nothing_is_stored_is_an_error(home: Path) -> None:
    lineage = keep(home, [ran(FIRST, "SELECT 1", inputs=["lake/about " + SECOND])])
    for runs in ((FIRST, SECOND), (SECOND, FIRST)):
        with pytest.raises(NotFoundError, match=f"no event of the run {SECOND} is stored"):
            lineage.diff(*runs)
