"""What a session refuses before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import waybill.spark
from waybill.transport import SettingsError


def test_a_setting_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(SettingsError, match="provenance_enable "):
        waybill.spark.configure(SparkSession.builder, provenance_enable=True)


def test_a_builder_of_spark_connect_is_refused_with_the_way_out(home: Path) -> None:
    builder = waybill.spark.configure(SparkSession.builder.remote("sc://localhost"), home=home)
    with pytest.raises(waybill.spark.SparkSetupError, match="remote="):
        builder.getOrCreate()
    assert not home.exists()


def test_what_spark_connect_needs_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, "waybill.spark.tracking.remote", raising=False)
    with pytest.raises(waybill.spark.SparkSetupError, match=r"pip install 'pyspark\[connect\]'"):
        waybill.spark.session("orders", remote="sc://localhost")


def test_a_configured_builder_is_still_the_users() -> None:
    builder = SparkSession.builder.appName("mine")
    assert waybill.spark.configure(builder) is builder
    assert isinstance(builder.config("spark.x", "y"), SparkSession.Builder)
