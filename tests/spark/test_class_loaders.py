"""The listener sees the JARs of the user, however they were named, and Spark has them as without it."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from waybill.spark import fetch_listener, find_java, spark_home
from waybill.spark.runtime import LISTENER_CLASS

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.spark_truth

COORDINATES = "org.example:catalog:1.0"
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>catalog</artifactId><version>1.0</version></project>"""

PROGRAM = """
import json, os
from pyspark.sql import SparkSession
builder = SparkSession.builder.appName("jars").master("local[1]").config("spark.ui.enabled", "false")
for name, value in json.loads(sys.argv[3]).items():
    builder = builder.config(name, value)
is_plain = "plain" in sys.argv
spark = (builder if is_plain else waybill.spark.configure(builder, **SETTINGS)).getOrCreate()
context = spark.sparkContext
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
loader = loader if is_plain else loader.loadClass(sys.argv[4]).getClassLoader()
shipped = str(context._jsc.sc().listJars().mkString(","))
said = {
    "seen": loader.getResource("org/example/catalog.txt") is not None,
    "shipped": sorted(path.rpartition("/")[2] for path in shipped.split(",") if path),
}
spark.stop()
print(json.dumps(said))
"""


class Catalog(NamedTuple):
    """A JAR, and the Maven repository that has it."""

    jar: Path
    repository: Path

    @property
    def packages(self) -> dict[str, str]:
        """The options that name it by its coordinates."""
        return {
            "spark.jars.packages": COORDINATES,
            "spark.jars.repositories": self.repository.as_uri(),
            "spark.jars.ivy": str(self.repository / "ivy"),
        }


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    repository = tmp_path_factory.mktemp("maven")
    jar = repository / "org" / "example" / "catalog" / "1.0" / "catalog-1.0.jar"
    jar.parent.mkdir(parents=True)
    jar.with_suffix(".pom").write_text(POM)
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr("org/example/catalog.txt", "seen")
    return Catalog(jar, repository)


def said(
    run: Run,
    options: Mapping[str, str],
    *more: str,
    command: tuple[str, ...] = (sys.executable,),
    env: Mapping[str, str | None] | None = None,
) -> dict[str, object]:
    """What a program with these options found."""
    ran = run(
        PROGRAM,
        command=command,
        arguments=(json.dumps(options), LISTENER_CLASS, *more),
        env={"JAVA_HOME": str(find_java().home), **(env or {})},
    )
    assert ran.status == 0, ran.stderr
    found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_jars_that_a_builder_names_are_seen_and_shipped_as_without_a_listener(
    run: Run, catalog: Catalog
) -> None:
    options = {"spark.jars": str(catalog.jar)} | catalog.packages
    found = said(run, options)
    assert found["seen"]
    assert found == said(run, options, "plain")


@pytest.mark.parametrize("way", ["spark-defaults.conf", "environment", "spark-submit"])
def test_jars_are_seen_by_the_listener_and_shipped_that_others_name(
    run: Run, catalog: Catalog, tmp_path: Path, way: str
) -> None:
    command: tuple[str, ...] = (sys.executable,)
    env, shipped = dict[str, str](), catalog.jar.name
    if way == "environment":  # whose class path hides no listener
        words = f"--driver-class-path {catalog.repository} --jars {catalog.jar}"
        env["PYSPARK_SUBMIT_ARGS"] = f"{words} pyspark-shell"
    elif way == "spark-submit":
        named = [part for name, value in catalog.packages.items() for part in ("--conf", f"{name}={value}")]
        command, shipped = (str(spark_home() / "bin" / "spark-submit"), *named), f"org.example_{shipped}"
    else:
        (tmp_path / "spark-defaults.conf").write_text(f"spark.jars {catalog.jar}\n")
        env["SPARK_CONF_DIR"] = str(tmp_path)
    assert said(run, {}, command=command, env=env) == {"seen": True, "shipped": [shipped]}


def test_a_listener_on_the_class_path_beside_jars_is_warned_of(run: Run, catalog: Catalog) -> None:
    command = (str(spark_home() / "bin" / "spark-submit"), "--driver-class-path", str(fetch_listener()))
    ran = run(
        PROGRAM,
        command=(*command, "--jars", str(catalog.jar)),
        arguments=("{}", LISTENER_CLASS),
        env={"JAVA_HOME": str(find_java().home)},
    )
    assert ran.status == 0, ran.stderr
    assert "cannot see the JARs" in ran.stdout  # where spark-submit sends what Python says
