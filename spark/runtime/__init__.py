"""Spark's requirements on this machine: Java and JARs."""

from .jars import (
    LISTENER_CLASS,
    LISTENER_VERSION,
    fetch_driver,
    fetch_listener,
    formats_not_followed,
    listener_path,
    scala_version,
    spark_defaults,
    spark_home,
)
from .java import Java, find_java
