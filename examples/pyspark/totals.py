"""Add up the orders, in a session that Waybill tracks."""

from __future__ import annotations

import waybill.spark

with waybill.spark.session("totals", master="local[2]") as spark:
    orders = spark.read.csv("orders.csv", schema="id INT, amount INT", header=True)
    orders.groupBy().sum("amount").toDF("total").coalesce(1).write.parquet("totals")
