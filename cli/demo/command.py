"""`waybill demo`: send real data through a pipeline and show its trail."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Final

from waybill.transport import FlushReport, Settings, Tracker, WaybillError
from waybill.transport.counting import counted

from .. import console
from ..arguments import JsonObject, flag, valued
from ..commands.root import in_place_of_runner
from ..home import flush_with_progress
from ..options import with_settings
from .pipeline import MONTHS, YEAR, data_folder, run

SYSTEM_NAME: Final = "flights-demo"
ANNOTATIONS: Final = "year,publisher,flights"

_MARKER: Final = ".waybill-demo"
_OF_MARQUEZ: Final = ("marquez_url", "marquez_api_key", "marquez_page_url")


@with_settings(*_OF_MARQUEZ)
def demo(
    settings: Settings,
    *,
    home: Annotated[
        Path, valued("DIR", "A folder for everything that the demo writes, and nothing else.")
    ] = Path("waybill-demo"),
    keep: Annotated[bool, flag("--keep", "Keep the output of an earlier demo, and add to it.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Follow a year of real flights through a PySpark pipeline.

    336,776 flights are split by month. Each month is validated, enriched in Spark SQL with airlines, airports
    and weather, and written to two sinks. One month arrives damaged, one is filtered, and one is cancelled.
    The demo then rebuilds its provenance files from each place that stores the events (the journal, the
    archive, the same events as JSON lines, and Marquez if there is one) and compares them with the originals.
    At the end it shows the trail: records, files, one file's journey, the comparison, and where to look next.
    Nothing keeps running. Exit code 1 unless all are identical. Takes about two minutes.

    Examples:
      waybill demo
      MARQUEZ_URL=http://localhost:5000 waybill demo --home /tmp/flights
    """
    from waybill.exporter import Query
    from waybill.lineage import find

    from . import report

    data, home = data_folder(), home.expanduser().absolute()
    mode = "adding to what is there" if keep else "starting anew each time"
    console.note(f"Waybill's demo: the flights of {YEAR}, all in {home} ({mode})")
    prepare(home, keep=keep)
    # A program would have these settings in its code, or better in `waybill.yaml`.
    given = {
        "home": home,
        "root": home,
        "system_name": SYSTEM_NAME,
        "provenance_enabled": True,
        "provenance_annotations_allowed": ANNOTATIONS,
        **{name: getattr(settings, name) for name in _OF_MARQUEZ},
    }
    own = Settings.load(given, origin="the demo")
    check_marquez(own)
    _send_others_output_to(home / "spark.log")
    _run_on_spark(own, given, data)
    flushed = finish(own)
    trail = report.Trail(find(home, Query()))
    sources = ["journal", "events", "jsonl"]
    if own.marquez_url is not None and "marquez" not in flushed.left:
        sources.append("marquez")
    again = list(report.rebuilds(own, sources, trail.since_ms))
    if as_json:
        told = {"home": str(home), "did": trail.year.did, "records": trail.counts, "files": flushed.files}
        console.json({**told, "left": flushed.left, "again": [check._asdict() for check in again]})
    else:
        report.show(trail, again, own, flushed.left)
    console.fail_if(any(check.verdict != report.IDENTICAL for check in again))


def prepare(home: Path, *, keep: bool) -> None:
    """Create the demo's folder, or empty an earlier demo's unless `keep` is true; another one is refused."""
    marker = home / _MARKER
    if home.exists() and not marker.is_file() and (not home.is_dir() or any(home.iterdir())):
        raise WaybillError(f"{home} is not the folder of an earlier demo; give another folder with --home")
    home.mkdir(parents=True, exist_ok=True)
    # Create the marker first, so that a demo that is interrupted here can be started again.
    marker.touch()
    if not keep:
        with in_place_of_runner(home):  # an earlier demo's ends before its journal is deleted
            for stale in set(home.iterdir()) - {marker}:
                shutil.rmtree(stale) if stale.is_dir() and not stale.is_symlink() else stale.unlink()


def check_marquez(settings: Settings) -> None:
    """Refuse a Marquez that does not answer: what its page shows would be of an earlier demo."""
    if settings.marquez_url is None:
        return
    from waybill.marquez import probe  # which loads requests

    problem = probe(settings.marquez_url, settings.marquez_api_key).problem
    if problem is not None:
        way_out = "start it, for example with `waybill dev up`, or leave MARQUEZ_URL out"
        raise WaybillError(f"{problem}; {way_out}")


def finish(settings: Settings) -> FlushReport:
    """Write the demo's files, end its background process, and say what Marquez does not have."""
    flushed = flush_with_progress(settings)
    with in_place_of_runner(settings.home):
        pass  # all that is left to do is to try a Marquez that does not answer, for minutes
    for name, count in flushed.left.items():
        console.note(f"{name} lacks {counted(count, 'entry', 'entries')}: {flushed.problems.get(name)}")
        way = f"waybill flush --home {shlex.quote(str(settings.home))}"
        console.note(f"They are safe in the journal; `{way}` delivers them.")
    return flushed


def _run_on_spark(settings: Settings, given: dict[str, Any], data: Path) -> None:
    """Run the pipeline with a progress bar, and print a line for each month."""
    from waybill.spark import session

    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        # The JVM's second compiler does not pay off in so short a run: 85 s of CPU with it, 48 s without.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (
        console.progress("starting Spark; the first time its listener is fetched too, 43 MB", MONTHS) as show,
        contextlib.closing(Tracker(settings=settings)) as tracker,
        session("flights", master="local[2]", conf=conf, **given) as spark,
    ):
        for month, says in run(spark, tracker, data, settings.home):
            console.note(f"  {YEAR}-{month:02d}  {says}")
            show(description="working the months", completed=month)


def _send_others_output_to(log: Path) -> None:
    """Leave the terminal to this program: what the JVM and the libraries say goes to a file from now on."""
    logging.basicConfig(filename=log, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.captureWarnings(capture=True)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
