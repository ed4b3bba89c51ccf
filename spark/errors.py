"""Errors that are caused by Spark or its requirements."""

from __future__ import annotations

from waybill.transport import WaybillError


class SparkSetupError(WaybillError):
    """Java or a JAR is missing, or another session is already running."""


class SparkTaskError(WaybillError):
    """A task failed, and failed again when Spark retried it."""
