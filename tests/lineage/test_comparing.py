"""In which two runs differ, by the events that are stored, wherever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from keeping import dataset, index, keep, keep_filed, ran

from waybill.lineage import Lineage
from waybill.transport import NotFoundError, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from events import Named

FIRST, SECOND = (f"01a1fd6a-9e75-7d78-870f-00000000000{number}" for number in (1, 2))


def daily(
    run: str,
    sql: str,
    reads: Sequence[Named],
    writes: Sequence[Named] = (),
    minute: int = 0,
    owner: str = "ada",
) -> dict[str, Any]:
    owned = {"owners": [{"name": owner}]}
    return ran("etl/daily", reads, writes, minute, run=run, sql=sql, ownership=owned)


@pytest.mark.parametrize("filed", [1, 3])
def test_runs_differ_in_what_their_last_events_say(settings: Settings, filed: int) -> None:
    first = dataset("a", types={"id": "int", "day": "date"}, owners=["eve"])
    second = dataset("a", types={"id": "bigint", "hour": "int"}, owners=["mal"])
    earlier = dataset("a", types={"id": "string"}, owners=["eve"])
    other = dataset("c", types={"x": "int"})
    told = [
        daily(FIRST, "SELECT 1", [first, "lake/b"], ["lake/out"]),
        daily(SECOND, "SELECT 0", [earlier], [], 60),
        daily(SECOND.upper(), "SELECT 2", [second, other], ["lake/out"], 120, "bob"),
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
    lineage = keep(home, [daily(FIRST, "SELECT 1", ["lake/about " + SECOND])])
    for runs in ((FIRST, SECOND), (SECOND, FIRST)):
        with pytest.raises(NotFoundError, match=f"no event of the run {SECOND} is stored"):
            lineage.diff(*runs)
