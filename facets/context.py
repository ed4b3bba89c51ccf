"""The run that a program is part of, as it passes from one program to those that it starts.

A program that starts others names its own run in their environment: in ``OPENLINEAGE_CONTEXT``, which holds
JSON in the form of the standard facet `parent`, and for older integrations in ``OPENLINEAGE_PARENT_ID`` and
``OPENLINEAGE_ROOT_PARENT_ID``, as ``namespace/job/run``. A trace that these programs are part of passes in
``TRACEPARENT`` (https://www.w3.org/TR/trace-context/), and their spans get the run's id as an attribute, by
``OTEL_RESOURCE_ATTRIBUTES``. Spark's listener reads neither of them, but properties of the JVM, which
``SPARK_SUBMIT_OPTS`` sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from .event import Parent
from .json_events import standard_facet
from .record import UNREADABLE

CONTEXT: Final = "OPENLINEAGE_CONTEXT"
PARENT: Final = "OPENLINEAGE_PARENT_ID"
ROOT: Final = "OPENLINEAGE_ROOT_PARENT_ID"
SPARK_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
URL: Final = "OPENLINEAGE_URL"
ENDPOINT: Final = "OPENLINEAGE_ENDPOINT"
LINEAGE_PATH: Final = "/api/v1/lineage"
"""The path where OpenLineage's clients post events, relative to the URL that they are given."""
LED: Final = "_WAYBILL_RUN_URL"
"""Says that an `URL` is that of a `waybill run`, whose own home has a backend already."""
RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
TRACE: Final = "TRACEPARENT"
_CHOSEN: Final = frozenset({"OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT", "OPENLINEAGE__TRANSPORT__TYPE"})
"""What else says where OpenLineage's clients send their events. Python's sets longer names itself."""
_SPARK: Final = "spark.openlineage."
_IDS: Final = re.compile(r"(.+)/([^/]+)/([^/]+)", re.DOTALL)
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class JobRun(msgspec.Struct, frozen=True):
    """A run of a job."""

    namespace: str
    job: str
    run: str

    def members(self) -> dict[str, Any]:
        """It as the facet `parent` has it."""
        return {"run": {"runId": self.run}, "job": {"namespace": self.namespace, "name": self.job}}

    def __str__(self) -> str:
        return f"{self.namespace}/{self.job}/{self.run}"


class Around(msgspec.Struct, frozen=True):
    """The run that started a program, and the first of all runs above it."""

    parent: JobRun
    root: JobRun

    def members(self) -> dict[str, Any]:
        """Both as the facet `parent` has them."""
        return {**self.parent.members(), "root": self.root.members()}

    def adopt(self, body: bytes) -> bytes:
        """An event that a program sends; if its run has no parent, with these.

        One that cannot be read stays as it is.
        """
        try:
            event = msgspec.json.decode(body)
            facets = event["run"].get("facets") or {}
            if not facets.get("parent") and event["run"]["runId"] != self.parent.run:
                facets["parent"] = standard_facet("1-2-0", "ParentRunFacet", **self.members())
                event["run"]["facets"] = facets
                return msgspec.json.encode(event)
        except (*UNREADABLE, KeyError, TypeError, AttributeError):
            pass  # admission says what is wrong with it; an event about a dataset or a job has no run
        return body

    def environment(self, before: Mapping[str, str]) -> dict[str, str]:
        """The variables that tell a program of them; `before` are those that it has already."""
        names = {"openlineage.run.id": self.parent.run, "openlineage.job.name": self.parent.job}
        attributes = [f"{key}={quote(value)}" for key, value in names.items()]
        return {
            CONTEXT: self._context(),
            PARENT: str(self.parent),
            ROOT: str(self.root),
            SPARK_OPTIONS: " ".join([*filter(None, [before.get(SPARK_OPTIONS)]), *self._spark_options()]),
            RESOURCE: ",".join([*filter(None, [before.get(RESOURCE)]), *attributes]),
        }

    def _spark_options(self) -> Iterator[str]:
        """Spark's options for the listener, as properties of its JVM in the words of a command line."""
        options = {
            f"{prefix}{name}": value
            for prefix, named in (("parent", self.parent), ("rootParent", self.root))
            for name, value in (
                ("JobNamespace", named.namespace),
                ("JobName", named.job),
                ("RunId", named.run),
            )
        }
        if any(value.startswith("[") and value.endswith("]") for value in options.values()):
            # The listener takes these for lists, and sends nothing. Only newer ones have this option.
            options = {"context": self._context()}
        for name, value in options.items():
            yield _spark_option(f"{_SPARK}{name}", value)

    def _context(self) -> str:
        return msgspec.json.encode({"parent": self.members()}).decode()


def lead_to(url: str, before: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables that lead OpenLineage's clients to an endpoint; none if the user has chosen another.

    Spark's listener gets its options, which come after those that the user gave to Spark, but before a file.

    Args:
        url: the endpoint, to which clients add the standard path.
        before: the variables that the program has already.
        folder: where it runs.
    """
    if _CHOSEN & before.keys():
        return {}
    led = {URL: url, LED: url, ENDPOINT: LINEAGE_PATH.lstrip("/")}
    options = before.get(SPARK_OPTIONS, "")
    files = (place / "openlineage.yml" for place in (folder, Path.home() / ".openlineage"))
    if f"{_SPARK}transport." not in options and not any(file.exists() for file in files):
        more = [_spark_option(name, value) for name, value in spark_transport(url).items()]
        led[SPARK_OPTIONS] = " ".join([*filter(None, [options]), *more])
    return led


def spark_transport(url: str) -> dict[str, str]:
    """The options that lead Spark's listener to an endpoint; it does not take a path with its URL."""
    parts = urlsplit(url)
    options = {"type": "http", "url": parts._replace(path="").geturl()}
    if path := parts.path.rstrip("/"):
        options["endpoint"] = f"{path.removesuffix(LINEAGE_PATH)}{LINEAGE_PATH}"
    return {f"{_SPARK}transport.{name}": value for name, value in options.items()}


def _spark_option(name: str, value: str) -> str:
    """An option of Spark's listener, as a property of its JVM in the words of a command line."""
    escaped = value.replace("\\", r"\\").replace('"', r"\"")
    return f'"-D{name}={escaped}"'


class _Parent(Parent, frozen=True):
    root: Parent | None = None


class _Context(msgspec.Struct):
    parent: _Parent


def find_around(environment: Mapping[str, str]) -> Around | None:
    """The run that started this program; None if nobody said it in a form that can be read."""
    try:
        parent = msgspec.json.decode(environment.get(CONTEXT, ""), type=_Context).parent
    except msgspec.DecodeError:
        named = _IDS.fullmatch(environment.get(PARENT, ""))
        if named is None:
            return None
        above = _IDS.fullmatch(environment.get(ROOT, "")) or named
        return Around(JobRun(*named.groups()), JobRun(*above.groups()))
    of_job = [
        JobRun(one.job.namespace, one.job.name, one.run.runId) for one in (parent, parent.root or parent)
    ]
    return Around(*of_job)


def find_trace(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The ids of the trace that this program is part of, and of the span that started it; None: of none."""
    found = _TRACE.fullmatch(environment.get(TRACE, "").strip())
    return (found[1], found[2]) if found else None
