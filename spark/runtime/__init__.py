"""Spark's requirements on this machine: Java and JARs."""

from .jars import (
    LISTENER_CLASS as LISTENER_CLASS,
    LISTENER_VERSION as LISTENER_VERSION,
    fetch_driver as fetch_driver,
    fetch_listener as fetch_listener,
    formats_not_followed as formats_not_followed,
    listener_path as listener_path,
    scala_version as scala_version,
    spark_defaults as spark_defaults,
    spark_home as spark_home,
)
from .java import Java as Java, find_java as find_java
