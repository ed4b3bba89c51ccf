"""A listener that is behind when the application stops, as on a busy machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from endings import ending
from stage import BEHIND

from waybill.facets import FinalState
from waybill.facets.spark_writes import LISTENER_ONLY

if TYPE_CHECKING:
    from stage import Play

pytestmark = pytest.mark.spark_truth

COMPLETE, ERROR = FinalState.COMPLETE, FinalState.ERROR

PROGRAM = """
spark = waybill.spark.session("busy", **SETTINGS, **LOCAL)
spark.sparkContext.setLogLevel("OFF")
failing = spark.range(9).selectExpr("if(id = 3, raise_error('boom'), id) AS x").repartition(2)
FALLS_BEHIND.set()
for number in range(3):
    spark.range(9).write.parquet(OUT + f"/good_{number}")
    attempt(f"failed_{number}", lambda: failing.write.parquet(OUT + f"/failed_{number}"))
spark.stop()
ENDED["is_behind"] = {"value": str(IS_BEHIND), "error": None}
tell()
"""


@ending(
    "a driver",
    "`stop()` while the listener is behind, as on a busy machine",
    really="exit status 0",
    record="as it went: ERROR with the cause, or COMPLETE without the mark `listener only`",
)
def test_a_driver_that_stops_while_the_listener_is_behind(play: Play) -> None:
    scene = play(BEHIND + PROGRAM)
    assert scene.ended["is_behind"]["value"] == "[True]"
    for number in range(3):
        assert scene.states(f"good_{number}") == [COMPLETE]
        assert scene.states(f"failed_{number}") == [ERROR]
        assert "boom" in scene.cause(f"failed_{number}")
    assert len(scene.ran.records) == 7
    marks = [str(one.annotations) for one in scene.ran.records]
    assert not [mark for mark in marks if "not known" in mark or LISTENER_ONLY in mark]
