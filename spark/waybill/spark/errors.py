"""The errors of this room."""

from __future__ import annotations

from waybill.transport import WaybillError


class SparkSetupError(WaybillError):
    """Java, a JAR or a session that is already running stands in the way of what was asked."""


class SparkTaskError(WaybillError):
    """Spark could not do what it was given, though it tried again."""
