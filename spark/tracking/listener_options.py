"""The Spark options that configure the listener, merged with those that the user gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from waybill.facets.context import spark_transport
from waybill.facets.overrides import OVERRIDABLE, PROPERTY_PREFIX

from ..errors import SparkSetupError
from ..runtime import LISTENER_CLASS

LISTENERS: Final = "spark.extraListeners"
APPLICATION_RUN: Final = "spark.openlineage.applicationRunId"
NAMESPACE: Final = "spark.openlineage.namespace"

_APP_NAME: Final = "spark.openlineage.appName"
_GLUE_NAME: Final = "spark.glue.JOB_NAME"
_CAPTURED: Final = "spark.openlineage.capturedProperties"
_TAGS: Final = "spark.openlineage.run.tags"
_CAPTURED_BY_DEFAULT: Final = ("spark.master", "spark.app.name")
_TIMEOUT_MS: Final = 30_000

Given = Callable[[str], str | None]
"""Looks up the user's value of a Spark option, wherever it was given."""


def listener_options(
    given: Given, *, url: str, namespace: str, names: Iterable[str], tags: Mapping[str, str]
) -> dict[str, str]:
    """The options for the listener; the user's values stay, and lists are extended.

    The namespace is that of its jobs and becomes the records' system name. The names are further
    ``spark.waybill.<name>`` properties that events should carry.

    Raises:
        SparkSetupError: the listener cannot accept one of the tags.
    """
    names = sorted(OVERRIDABLE.union(names))
    captured = [*_listed(given(_CAPTURED), _CAPTURED_BY_DEFAULT), *(PROPERTY_PREFIX + name for name in names)]
    options = {
        LISTENERS: ",".join(dict.fromkeys([*_listed(given(LISTENERS)), LISTENER_CLASS])),
        **spark_transport(url),
        "spark.openlineage.transport.timeoutInMillis": str(_TIMEOUT_MS),
        NAMESPACE: given(NAMESPACE) or namespace,
        _CAPTURED: ",".join(dict.fromkeys(captured)),
    }
    # On a busy machine the listener reports the application before it knows its name, and calls it "unknown".
    # It prefers the name of an AWS Glue job to Spark's.
    if (name := given(_APP_NAME) or given("spark.app.name")) and not given(_GLUE_NAME):
        options[_APP_NAME] = name
    all_tags = [*filter(None, [given(_TAGS)]), *(_tag(key, value) for key, value in tags.items())]
    return options | {_TAGS: ";".join(all_tags)} if all_tags else options


def _listed(value: str | None, otherwise: Iterable[str] = ()) -> list[str]:
    return list(otherwise) if value is None else [part.strip() for part in value.split(",") if part.strip()]


def _tag(key: str, value: str) -> str:
    parts = []
    for text in (key, value):
        # The listener reads a backslash before a separator as its escape, and one anywhere else as itself.
        if not text or text.endswith("\\") or "\n" in text:
            raise SparkSetupError(
                f"the run tag {key!r} = {value!r} is invalid; remove the line end or backslash"
            )
        parts.append(re.sub(r"([:;])", r"\\\1", text))
    return ":".join(parts)
