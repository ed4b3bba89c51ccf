"""`waybill demo`: send real data through a pipeline and show its trail."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from waybill.transport import Settings, Tracker

from .. import console
from ..arguments import JsonObject
from ..flushing import flush_with_progress
from ..options import with_settings
from .flights import YEAR, data_folder
from .folder import prepare
from .pipeline import Flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SYSTEM_NAME: Final = "flights-demo"
ANNOTATIONS: Final = "year,publisher,flights"

_MONTHS: Final = 12


@with_settings("marquez_url", "marquez_api_key", "marquez_page_url")
def demo(
    settings: Settings,
    *,
    home: Annotated[
        Path,
        typer.Option(metavar="DIR", help="A folder for everything that the demo writes, and nothing else."),
    ] = Path("waybill-demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the output of an earlier demo, and add to it.")
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Follow a year of real flights through a PySpark pipeline.

    336,776 flights are split by month. Each month is validated, enriched in Spark SQL with airlines, airports
    and weather, and written to two sinks. One month arrives damaged, one is filtered, and one is cancelled.
    The demo then rebuilds its provenance files from each place that stores the events (the journal, the
    archive, the same events as JSON lines, and Marquez if there is one) and compares them with the originals.
    At the end it shows the trail: records, files, one file's journey, the comparison, and where to look next.
    Exit code 1 unless all are identical. Takes about two minutes.

    Examples:

    \b
      waybill demo
      MARQUEZ_URL=http://localhost:5000 waybill demo --home /tmp/flights
    """
    from waybill.exporter import Query, find

    from . import report
    from .trail import Trail, rebuilds

    start_s = time.monotonic()
    data = data_folder()
    home = home.expanduser().absolute()
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
        "marquez_url": settings.marquez_url,
        "marquez_api_key": settings.marquez_api_key,
        "marquez_page_url": settings.marquez_page_url,
    }
    _run(given, home, data)
    own = Settings.load(given, origin="the demo")
    flushed = flush_with_progress(own)
    for name, count in flushed.left.items():
        why = flushed.problems.get(name, "they are on their way")
        console.note(f"{name} has {count} entries left, which are safe in the journal: {why}")
    trail = Trail(find(home, Query()))
    again = list(rebuilds(trail, own, delivered="marquez" not in flushed.left))
    took_s = time.monotonic() - start_s
    if as_json:
        by_state = {one.state.value: {"tracked": one.tracked, "spark": one.spark} for one in trail.by_state()}
        console.json(
            {
                "home": str(home),
                "did": trail.year.did,
                "records": by_state,
                "files": flushed.files,
                "left": flushed.left,
                "again": again,
                "took_s": round(took_s, 1),
            }
        )
    else:
        report.show(trail, home, again, settings=own)
        console.note()
        console.note(f"{took_s:.0f} s, including the start of Spark")
    if any(one.is_different for one in again):
        raise typer.Exit(console.EXIT_FAILED)


def _run(given: dict[str, Any], home: Path, data: Path) -> None:
    """Run the pipeline with a progress bar, and print a line for each month."""
    with console.progress("starting Spark; the first time its listener is fetched too, 43 MB") as show:
        tracker = Tracker(settings=Settings.load(given, origin="the demo"))
        with contextlib.closing(tracker), _session(given, home / "spark.log") as spark:
            show(description="splitting the year", total=_MONTHS)
            for outcome in Flights(spark, tracker, data=data, work=home).run():
                console.note(f"  {YEAR}-{outcome.month:02d}  {outcome.says}")
                show(description="working the months", completed=outcome.month)
            show(description="stopping Spark")


def _session(given: dict[str, Any], log: Path) -> SparkSession:
    """A tracked session whose output goes to a file: the JVM's, and py4j's when Ctrl-C cuts a call short."""
    from waybill.spark import session

    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        # The JVM's second compiler does not pay off in so short a run: 85 s of CPU with it, 48 s without.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    logging.basicConfig(filename=log, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    with _stderr_to(log), warnings.catch_warnings():
        # PySpark warns about pandas, which the data's package installs and which is not used here.
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        return session("flights", master="local[2]", conf=conf, **given)


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Send the stderr of processes started in the meantime to a file, but not that of this process."""
    python_stderr = sys.stderr
    descriptor = os.dup(2)
    with log.open("ab") as file, os.fdopen(descriptor, "w", buffering=1, encoding="utf-8") as own:
        os.dup2(file.fileno(), 2)
        sys.stderr = own
        try:
            yield
        finally:
            sys.stderr = python_stderr
            os.dup2(descriptor, 2)
