"""What the listener is told, and what the user said before stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from waybill.spark import SparkSetupError
from waybill.spark.runtime import LISTENER_CLASS, spark_defaults
from waybill.spark.tracking.listener_options import listener_options


def told(given: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None) -> dict[str, str]:
    return listener_options(
        (given or {}).get, url="http://127.0.0.1:1", namespace="system", names={"ticket"}, tags=tags or {}
    )


CAPTURED = "spark.openlineage.capturedProperties"
NAME, NAMESPACE = "spark.openlineage.appName", "spark.openlineage.namespace"
LISTENERS, TAGS = "spark.extraListeners", "spark.openlineage.run.tags"


@pytest.mark.parametrize(
    ("given", "option", "value"),
    [
        ({}, NAMESPACE, "system"),
        ({NAMESPACE: "mine"}, NAMESPACE, "mine"),
        ({"spark.app.name": "orders"}, NAME, "orders"),
        ({"spark.app.name": "orders", NAME: "mine"}, NAME, "mine"),
        ({"spark.app.name": "orders", "spark.glue.JOB_NAME": "glued"}, NAME, None),
        ({}, NAME, None),
        ({LISTENERS: "com.example.A"}, LISTENERS, f"com.example.A,{LISTENER_CLASS}"),
        ({LISTENERS: LISTENER_CLASS}, LISTENERS, LISTENER_CLASS),
        ({}, TAGS, None),
    ],
)
def test_an_option_of_the_user_s_stays_and_is_added_to(
    given: Mapping[str, str], option: str, value: str | None
) -> None:
    assert told(given).get(option) == value


def test_properties_of_records_and_allowed_annotations_are_captured() -> None:
    first, *captured = told({CAPTURED: "spark.mine"})[CAPTURED].split(",")
    assert first == "spark.mine"
    assert {"spark.waybill.did", "spark.waybill.data_sink", "spark.waybill.ticket"} <= set(captured)


def test_tags_are_escaped_and_added_to_the_users() -> None:
    assert told({TAGS: "a:b"}, {"c:d": "e;f"})[TAGS] == "a:b;c\\:d:e\\;f"


@pytest.mark.parametrize("tag", [("k", ""), ("", "v"), ("k", "ends with \\"), ("k", "two\nlines")])
def test_a_tag_the_listener_cannot_read_is_refused(tag: tuple[str, str]) -> None:
    with pytest.raises(SparkSetupError, match="run tag"):
        told(tags=dict([tag]))


def test_spark_defaults_are_read_as_spark_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_defaults(tmp_path) == {}
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.a 1\n\nspark.b   two words \nspark.c=3\nspark.d : 4\nspark.e\t5\n"
    )
    assert spark_defaults(tmp_path) == {
        "spark.b": "two words",
        "spark.c": "3",
        "spark.d": "4",
        "spark.e": "5",
    }
