#!/usr/bin/env bash
# Delta Lake 4.0.0 on PySpark 4.0.5: CONVERT TO DELTA fails for every folder and table of Parquet.
#
# Delta 4.0.0 is made for Spark 4.0 and calls a constructor of Spark's own ParquetToSparkSchemaConverter with five
# booleans. Spark 4.0.5, a later patch of the same version, has no such constructor any more, so the tasks that
# read the schemas of the files end with a NoSuchMethodError. Other statements of Delta 4.0.0 work there.
#
# Seen: "BAD NoSuchMethodError: void ...ParquetToSparkSchemaConverter.<init>(boolean, boolean, boolean, boolean, boolean)"
# It exits with 1 if that changes. It needs Python 3.11 or newer, Java 17 or newer, and package registries.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet pyspark==4.0.5
cat > convert.py <<'PROGRAM'
import os
import re

from pyspark.sql import SparkSession

here = os.getcwd()
options = {
    "spark.jars.packages": "io.delta:delta-spark_2.13:4.0.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
}
builder = SparkSession.builder.master("local[1]")
for name, value in options.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.range(5).write.format("delta").save(f"{here}/written")
print("OK   write of", spark.read.format("delta").load(f"{here}/written").count(), "rows")
spark.range(5).write.parquet(f"{here}/files")
try:
    spark.sql(f"CONVERT TO DELTA parquet.`{here}/files`").collect()
    print("OK   convert")
except Exception as error:
    print("BAD ", re.search(r"NoSuchMethodError.*|$", str(error))[0])
PROGRAM
venv/bin/python convert.py 2> log | tee said
grep -q "^OK   write of 5 rows" said
grep -q "^BAD  NoSuchMethodError.*ParquetToSparkSchemaConverter" said
