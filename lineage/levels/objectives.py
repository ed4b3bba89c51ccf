"""The file of objectives, ``slis.yaml``: what is promised, of which datasets, and where it is checked."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from waybill.pipelines.yaml_files import Duration, YamlFileError, YamlPart, duration_s, read_yaml
from waybill.transport.errors import NotFoundError

if TYPE_CHECKING:
    from waybill.transport.config import Settings

FILE_NAME: Final = "slis.yaml"
"""The file in a home, unless the setting `slis` names another one."""

Tier = Literal["critical", "important", "optional"]
TIERS: Final = ("critical", "important", "optional")

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
_Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Count = Annotated[float, msgspec.Meta(ge=0)]
_Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Sli(StrEnum):
    """A service level; docs/service-levels.md defines each."""

    COVERAGE = "coverage"
    FRESHNESS = "freshness"
    COMPLETENESS = "completeness"
    ACCURACY = "accuracy"
    MISSING_PROVENANCE = "missing_provenance"
    INGESTION_LAG = "ingestion_lag"
    QUERY_LATENCY = "query_latency"
    IMPACT_ANALYSIS = "impact_analysis"
    ERROR_RATE = "error_rate"
    UNAUTHORISED_ACCESS = "unauthorised_access"


class Field(StrEnum):
    """A field that is required of a dataset."""

    OWNER = "owner"
    SCHEMA = "schema"
    CHECKSUM = "checksum"
    DESCRIPTION = "description"
    TAGS = "tags"
    VERSION = "version"


class Shares(YamlPart, frozen=True):
    """Shares by tier, from 0 to 1; None: nothing is promised."""

    critical: _Ratio | None = None
    important: _Ratio | None = None
    optional: _Ratio | None = None


class Ages(YamlPart, frozen=True):
    """Durations by tier; None: nothing is promised."""

    critical: Duration | None = None
    important: Duration | None = None
    optional: Duration | None = None


class Objectives(YamlPart, frozen=True):
    """What is promised of each level: at least of the first, third and fourth, at most of the others."""

    coverage: Shares = Shares(critical=0.8)
    freshness: Ages = Ages(critical="1h")
    completeness: Shares = Shares(critical=0.95)
    accuracy: Shares = Shares(critical=0.98)
    missing_provenance: Shares = Shares(critical=0.01, important=0.01, optional=0.01)
    ingestion_lag: Duration | None = "30s"
    query_latency: Duration | None = "500ms"
    impact_analysis: Duration | None = "15m"
    error_rate: _Ratio | None = 0.001
    unauthorised_access: _Count | None = 0.0

    def of(self, sli: Sli, tier: str = "") -> float | None:
        """What is promised of a level, in its unit; None: nothing."""
        given = getattr(self, sli.value)
        given = getattr(given, tier) if isinstance(given, Shares | Ages) else given
        return duration_s(given) if isinstance(given, str) else given


class TierRule(YamlPart, frozen=True):
    """The tier of the datasets whose names match a pattern with `*`, `?` and `[…]`."""

    datasets: _Text
    tier: Tier


class Inventory(YamlPart, frozen=True):
    """Where to read which datasets there are.

    Attributes:
        manifests: folders of packages; a path begins at the folder of the file.
        csv: files with the columns `namespace` and `name` and, if known, `tier` and `owner`.
        url: a catalogue's address, which answers with such a CSV, or with such objects in JSON.
        token_variable: the variable of the environment that has the catalogue's bearer token.
        timeout: how long the whole answer of the catalogue may take.
    """

    manifests: tuple[_Text, ...] = ()
    csv: tuple[_Text, ...] = ()
    url: Annotated[str, msgspec.Meta(pattern="^https?://.")] | None = None
    token_variable: _Text | None = None
    timeout: Duration = "10s"


class Expected(YamlPart, frozen=True):
    """Which edges the graph should have, beside those that the inventory's manifests expect.

    Attributes:
        csv: files with the columns `source_namespace`, `source`, `target_namespace` and `target` and, of
            columns, `source_column` and `target_column`: a sample that somebody has verified.
        analyzer: what this analyzer finds is expected of the others, too.
    """

    csv: tuple[_Text, ...] = ()
    analyzer: _Text | None = None


class MaintenanceWindow(YamlPart, frozen=True):
    """A time in which a level may be missed.

    Attributes:
        begins: its first instant, with a time zone.
        ends: the instant after it.
        why: for those who look.
        datasets: the datasets that it is about, by patterns; of other levels, it is about all or none.
        slis: the levels that it is about; empty: all.
    """

    begins: _Instant
    ends: _Instant
    why: str = ""
    datasets: tuple[_Text, ...] = ("*",)
    slis: tuple[Sli, ...] = ()

    @property
    def is_about_all(self) -> bool:
        """Whether it is about all datasets."""
        return "*" in self.datasets

    def is_about(self, sli: Sli, dataset: str = "") -> bool:
        """Whether it is about a level and, unless that is empty, a dataset as `dataset_text` names it."""
        is_named = not dataset or any(fnmatchcase(dataset, pattern) for pattern in self.datasets)
        return is_named and (not self.slis or sli in self.slis)


class OnAlert(YamlPart, frozen=True):
    """How to tell that a level is missed, and that it is met again; see docs/service-levels.md.

    Attributes:
        command: a program and its arguments, without a shell; it gets the alert as JSON on stdin.
        webhook: an address that gets it as the body of a POST; one of both is given.
        timeout: how long that may take.
    """

    command: tuple[_Text, ...] = ()
    webhook: Annotated[str, msgspec.Meta(pattern="^https?://.")] | None = None
    timeout: Duration = "30s"

    @property
    def timeout_s(self) -> float:
        """How long it may take, in seconds."""
        return duration_s(self.timeout)


class LevelsFile(YamlPart, frozen=True):
    """The file of objectives.

    Attributes:
        tiers: the tiers of datasets; the first pattern that matches counts.
        objectives: what is promised.
        required: the fields that a dataset has to have to be complete.
        inventory: which datasets there are.
        expected: which edges the graph should have.
        external: patterns of datasets that come from elsewhere, so that no job writes them.
        maintenance: when levels may be missed.
        on_alert: how to tell that a level is missed; None: nobody is told.
    """

    tiers: tuple[TierRule, ...] = ()
    objectives: Objectives = Objectives()
    required: Annotated[tuple[Field, ...], msgspec.Meta(min_length=1)] = (Field.OWNER, Field.SCHEMA)
    inventory: Inventory = Inventory()
    expected: Expected = Expected()
    external: tuple[_Text, ...] = ()
    maintenance: tuple[MaintenanceWindow, ...] = ()
    on_alert: OnAlert | None = None

    def active_windows(self, now_ms: int) -> tuple[MaintenanceWindow, ...]:
        """The maintenance windows at an instant, in epoch milliseconds."""
        now = datetime.fromtimestamp(now_ms / 1_000, UTC)
        return tuple(one for one in self.maintenance if one.begins <= now < one.ends)


class Plan(msgspec.Struct, frozen=True):
    """What is promised, the folder at which its paths begin, and whether a group may write what they name."""

    file: LevelsFile
    folder: Path
    by_group: bool = False


def read_plan(settings: Settings) -> Plan:
    """Read the file of objectives of a home; without one, the defaults are promised.

    Raises:
        NotFoundError: the setting `slis` names a file that is not there.
        YamlFileError: the file cannot be read, says something that it cannot mean, or others could have
            written it.
    """
    by_group = settings.home_mode == "group"
    path = settings.slis or settings.home / FILE_NAME
    if not path.exists():
        if settings.slis is not None:
            raise NotFoundError(f"there is no file {path}; correct the setting slis, or write the file")
        return Plan(LevelsFile(), settings.home)
    file, lines = read_yaml(path, LevelsFile, by_group=by_group)
    for number, window in enumerate(file.maintenance):
        if window.ends <= window.begins:
            place = f"maintenance.{number}.ends"
            raise YamlFileError(str(path), lines[place], place, "it is not after `begins`; give a later time")
    on_alert = file.on_alert
    if on_alert is not None and bool(on_alert.command) == bool(on_alert.webhook):
        what = "it has neither a `command` nor a `webhook`, or both; give one"
        raise YamlFileError(str(path), lines["on_alert"], "on_alert", what)
    if by_group and on_alert is not None and on_alert.command:
        what = "the home is of a group, each of whom could have written it; give a webhook instead"
        raise YamlFileError(str(path), lines["on_alert.command"], "on_alert.command", what)
    if by_group and file.inventory.token_variable is not None:
        place = "inventory.token_variable"
        what = (
            "the home is of a group, each of whom could have written it; give a catalogue that needs no token"
        )
        raise YamlFileError(str(path), lines[place], place, what)
    return Plan(file, path.absolute().parent, by_group)
