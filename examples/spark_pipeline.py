"""Run a small PySpark pipeline in which two things go wrong, then print its records."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

import waybill.spark
from waybill.lineage import find
from waybill.transport import Settings, flush

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "order,region,amount\n1,eu,20\n2,us,15\n3,eu,7\n"


def pipeline(spark: SparkSession, lake: Path) -> None:
    """Sum up orders by region; the second write fails, and at the end the program fails, too."""
    orders = spark.read.csv(f"{lake}/orders.csv", schema="order INT, region STRING, amount INT", header=True)
    totals = orders.groupBy("region").sum("amount").withColumnRenamed("sum(amount)", "total")
    totals.write.parquet(f"{lake}/totals")
    try:
        orders.write.parquet(f"{lake}/totals")
    except AnalysisException as error:
        print("caught:", error.getCondition())
    spark.read.parquet(f"{lake}/totals").write.json(f"{lake}/report")
    raise LookupError("no dashboard to send the report to")


def main() -> None:
    """Run the pipeline as one application, then print its records."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder, "lake")
        lake.mkdir()
        (lake / "orders.csv").write_text(ORDERS, encoding="utf-8")
        # A temporary home and no runner leave nothing behind; a pipeline needs only provenance_enabled.
        settings: dict[str, Any] = {"home": f"{folder}/home", "runner": "none", "provenance_enabled": True}
        settings |= {"system_name": "example"}
        try:
            with waybill.spark.session("orders", master="local[2]", **settings) as spark:
                pipeline(spark, lake)
        except LookupError as error:
            print("caught:", error)

        flush(Settings.load(settings))
        for record in reversed(find(Path(folder, "home"))):
            source, sink = (name.rpartition("/")[2] for name in (record.data_source, record.data_sink or "-"))
            cause = (
                (record.annotations or {})
                .get("errorCause", "")
                .partition(". ")[0]
                .replace(f"file:{lake}/", "")
            )
            print(f"{record.final_state:8} {source:10} > {sink:6} {cause}".rstrip())


if __name__ == "__main__":
    main()
