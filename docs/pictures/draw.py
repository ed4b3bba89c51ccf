"""Make the pictures of Marquez's page in this folder, with a real Marquez and a real browser.

The pictures of the collector's own page, `page-*.png`, are made by its tests: see docs/development.md.

    pip install playwright
    MARQUEZ_URL=http://localhost:5000 python docs/pictures/draw.py http://localhost:3000

The argument is the address of Marquez's page. Start with an empty Marquez, or older runs are in the pictures.
Needs the extras `demo` and `collector`, and Chromium or Chrome (`BROWSER`: its path).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from playwright.sync_api import ViewportSize, sync_playwright

from waybill import Tracker
from waybill.spark import fetch_listener

PICTURES: Final = Path(__file__).parent
BROWSER: Final = os.environ.get("BROWSER", "/usr/bin/chromium")
SIZE: Final[ViewportSize] = {"width": 1500, "height": 750}
BYTES_MAX: Final = 150_000
"""The size of a picture file."""
DRAWN_AFTER_MS: Final = 6_000
FILES: Final = 2_000
BROKEN_EACH: Final = 100
ENDED_AFTER_S: Final = 15
"""Within this time, the runner ends the runs that an ended application has left open."""


def demo(folder: Path) -> None:
    """The demo's flow and its Spark jobs."""
    waybill("demo", "--home", str(folder))


def files_in_summaries(folder: Path, marquez_url: str) -> None:
    """A flow of many files, of which one transform fails some."""
    given = {"provenance_enabled": True, "marquez_detail": "summary", "marquez_url": marquez_url}
    with Tracker(home=folder, root=folder, system_name="shop", **given) as tracker:
        for number in range(FILES):
            with (
                contextlib.suppress(ValueError),
                tracker.file(f"{number}.json", data_source="orders") as file,
            ):
                with file.transform("unpack"):
                    pass
                with file.transform("validate"):
                    if number % BROKEN_EACH == 0:
                        raise ValueError(f"line {number} is no order")
                with file.transform("load"):
                    file.egress("warehouse")
    waybill("flush", "--home", str(folder))


SPARK_JOB: Final = """
from pyspark.sql import SparkSession, functions
spark = SparkSession.builder.getOrCreate()
spark.range(100).write.parquet("in")
broken = functions.udf(lambda n: 1 // 0, "int")
spark.read.parquet("in").withColumn("rate", broken("id")).write.parquet("rates")
"""


def failed_spark_job(folder: Path) -> None:
    """A Spark job that fails, with the listener's plain configuration and a collector."""
    with collector(folder / "home") as url:
        options = {
            "spark.app.name": "rates",
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "spark.jars": str(fetch_listener()),
            "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
            "spark.openlineage.transport.type": "http",
            "spark.openlineage.transport.url": url,
            "spark.openlineage.namespace": "plain-spark",
        }
        arguments = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"])}
        environment["PYSPARK_PYTHON"] = sys.executable
        command = [sys.executable, "-c", SPARK_JOB]
        done = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True)
        if b"ZeroDivisionError" not in done.stderr:
            raise SystemExit(done.stderr.decode())
        time.sleep(ENDED_AFTER_S)
        waybill("flush", "--home", str(folder / "home"))


@contextlib.contextmanager
def collector(home: Path) -> Iterator[str]:
    """The URL of a collector while it runs."""
    command = [
        sys.executable,
        "-m",
        "waybill.cli",
        "serve",
        "--json",
        "--provenance-enabled",
        "--listen",
        "127.0.0.1:0",
        "--home",
        str(home),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield json.loads(process.stdout.readline() if process.stdout else b"")["url"]
        finally:
            process.terminate()


def waybill(*arguments: str) -> None:
    """Run a command, and stop here if it fails."""
    subprocess.run([sys.executable, "-m", "waybill.cli", *arguments], check=True)


def graph(namespace: str, name: str) -> str:
    """The path on Marquez's page of a job's graph."""
    path = "/".join(quote(part, safe="") for part in (namespace, name))
    return f"/lineage/job/{path}?depth=20"


def panel(namespace: str, name: str) -> str:
    """The same with the job's own panel."""
    return f"{graph(namespace, name)}&tableLevelNode={quote(f'job:{namespace}:{name}', safe='')}"


def draw(page_url: str, pages: dict[str, str]) -> None:
    """Make a picture of each of these addresses, by its name."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        for name, path in pages.items():
            page = browser.new_page(viewport=SIZE, timezone_id="UTC")
            page.goto(page_url + path)
            # The graph is laid out by a worker, and nothing says when that is done.
            page.wait_for_timeout(DRAWN_AFTER_MS)
            picture = PICTURES / f"{name}.png"
            page.screenshot(path=picture)
            page.close()
            if picture.stat().st_size > BYTES_MAX:
                raise SystemExit(
                    f"{picture} has {picture.stat().st_size:,} bytes, and may have {BYTES_MAX:,}"
                )
        browser.close()


def main() -> None:
    """Fill Marquez, and make each picture."""
    page_urls, marquez_url = sys.argv[1:], os.environ.get("MARQUEZ_URL")
    if not (page_urls and marquez_url):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("demo", "summaries", "spark"):
            (folder / part).mkdir()
        demo(folder / "demo")
        files_in_summaries(folder / "summaries", marquez_url)
        failed_spark_job(folder / "spark")
    pages = {
        "demo": "/lineage/dataset/flights-demo/nycflights13?depth=20&isFull=true",
        "summaries": "/lineage/dataset/shop/orders?depth=20",
        "transform": panel("shop", "validate · orders"),
        "failed-spark-job": graph(
            "plain-spark", "rates.execute_insert_into_hadoop_fs_relation_command.spark_rates"
        ),
    }
    draw(page_urls[0].rstrip("/"), pages)


if __name__ == "__main__":
    main()
