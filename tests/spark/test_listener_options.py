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


def test_the_system_name_is_the_namespace_unless_the_user_gave_one() -> None:
    assert told()["spark.openlineage.namespace"] == "system"
    assert told({"spark.openlineage.namespace": "mine"})["spark.openlineage.namespace"] == "mine"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"spark.app.name": "orders"}, "orders"),
        ({"spark.app.name": "orders", "spark.openlineage.appName": "mine"}, "mine"),
        ({"spark.app.name": "orders", "spark.glue.JOB_NAME": "glued"}, None),
        ({}, None),
    ],
)
def test_the_listener_is_told_the_application_s_name_which_it_may_not_know_yet(
    given: Mapping[str, str], name: str | None
) -> None:
    assert told(given).get("spark.openlineage.appName") == name


def test_listeners_of_the_users_stay_and_ours_is_there_once() -> None:
    assert (
        told({"spark.extraListeners": "com.example.A"})["spark.extraListeners"]
        == f"com.example.A,{LISTENER_CLASS}"
    )
    assert told({"spark.extraListeners": LISTENER_CLASS})["spark.extraListeners"] == LISTENER_CLASS


def test_properties_of_records_and_allowed_annotations_are_captured() -> None:
    captured = told({"spark.openlineage.capturedProperties": "spark.mine"})[
        "spark.openlineage.capturedProperties"
    ]
    assert captured.split(",")[0] == "spark.mine"
    assert {"spark.waybill.did", "spark.waybill.data_sink", "spark.waybill.ticket"} <= set(
        captured.split(",")
    )


def test_tags_are_escaped_and_added_to_the_users() -> None:
    given = {"spark.openlineage.run.tags": "a:b"}
    assert told(given, {"c:d": "e;f"})["spark.openlineage.run.tags"] == "a:b;c\\:d:e\\;f"
    assert "spark.openlineage.run.tags" not in told()


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
