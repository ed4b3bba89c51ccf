"""A PySpark program whose home has agreed on other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.transport import Settings, locks
from waybill.transport.home import Home

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

PROGRAM = """
import logging
logging.basicConfig()
for _ in range(2):
    spark = waybill.spark.session("job", root=OUT + "/mine", **LOCAL, **SETTINGS)
spark.range(3).write.parquet(OUT + "/numbers")
spark.stop()
"""


def test_a_session_keeps_its_events_by_the_agreed_settings_and_may_be_asked_for_again(
    run: Run, home: Path, root: Path, tmp_path: Path
) -> None:
    agreed = {"home": home, "root": root, "runner": "none", "system_name": "tests"}
    Home.open(Settings.load(agreed, env={}, cwd=tmp_path)).close()
    lease = locks.take(home)
    assert lease
    ran = run(PROGRAM, home=home)
    lease.release()
    assert ran.status == 0, ran.stderr
    assert ran.stderr.count("to change the agreed settings") == 1
    assert len(ran.written("numbers")) == 1
