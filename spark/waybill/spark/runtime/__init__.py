"""What Spark needs on this machine: a Java and the listener's JAR."""

from __future__ import annotations

from waybill.spark.runtime.jars import (
    LISTENER_CLASS,
    LISTENER_VERSION,
    fetch_driver,
    fetch_listener,
    listener_path,
    scala_version,
    spark_home,
)
from waybill.spark.runtime.java import Java, find_java

__all__ = [
    "LISTENER_CLASS",
    "LISTENER_VERSION",
    "Java",
    "fetch_driver",
    "fetch_listener",
    "find_java",
    "listener_path",
    "scala_version",
    "spark_home",
]
