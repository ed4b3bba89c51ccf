"""The error of this room: a PySpark program cannot be tracked as this machine or session stands."""

from __future__ import annotations

from waybill.transport import WaybillError


class SparkSetupError(WaybillError):
    """Java, the listener's JAR or a session that is already running stands in the way of tracking."""
