"""The settings: what each may be, where its value came from, and which ones a home's runner works by."""

from __future__ import annotations

from waybill.transport.config.agreement import agree, agree_as_runner, agreed, conflicts, follow, joined, obey
from waybill.transport.config.backends import (
    DETAIL_BACKLOG,
    MARQUEZ,
    BackendSetting,
    Detail,
    environment_of,
    kafka_address,
    without_users,
)
from waybill.transport.config.settings import SECRETS, Settings, names
from waybill.transport.config.validators import days

__all__ = [
    "DETAIL_BACKLOG",
    "MARQUEZ",
    "SECRETS",
    "BackendSetting",
    "Detail",
    "Settings",
    "agree",
    "agree_as_runner",
    "agreed",
    "conflicts",
    "days",
    "environment_of",
    "follow",
    "joined",
    "kafka_address",
    "names",
    "obey",
    "without_users",
]
