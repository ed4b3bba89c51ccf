"""Shell completions for the values of options; none where the values cannot be determined."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar, get_args, get_type_hints

import typer

from waybill.exporter.names import COMPACTED, system_of
from waybill.transport import Journal, Settings
from waybill.transport.config import AGREED, MARQUEZ, agreed, follow

_Found = TypeVar("_Found")

Complete = Callable[[str], list[str]]

PACKAGE_SCHEMA: Final = "package"
"""The name of the schema of manifests, beside those of facets."""


def values_of(setting: str) -> Complete | None:
    """The completion of a setting that takes one of a few words; None if it takes any value."""
    words = get_args(get_type_hints(Settings)[setting])
    known = [word for word in words if isinstance(word, str)]
    return (lambda incomplete: _starting(known, incomplete)) if known else None


def agreed_settings(incomplete: str) -> list[str]:
    """The settings that a home agrees on."""
    return _starting(AGREED, incomplete)


def sources(incomplete: str) -> list[str]:
    """The sources of stored events."""
    from waybill.exporter.sources import SOURCES_GROUP

    return _starting((point.name for point in entry_points(group=SOURCES_GROUP)), incomplete)


def facet_schemas(incomplete: str) -> list[str]:
    """The schemas of the facets."""
    from waybill.facets.schema_files import read_facet_schemas

    return _starting([*read_facet_schemas(), PACKAGE_SCHEMA], incomplete)


def backends(context: typer.Context, incomplete: str) -> list[str]:
    """The backends that the settings name."""
    found = {MARQUEZ}
    with contextlib.suppress(Exception):  # a completion must not show errors
        found |= {one.name for one in _settings(context).backends}
    return _starting(found, incomplete)


def projections(context: typer.Context, incomplete: str) -> list[str]:
    """The projections that the home's journal knows."""
    return _starting(_of_home(context, lambda journal: journal.cursors()), incomplete)


def keys(context: typer.Context, incomplete: str) -> list[str]:
    """The API keys of the home."""
    from waybill.collector import Keys

    return _starting(_of_home(context, lambda journal: [key.name for key in Keys(journal).all()]), incomplete)


def systems(context: typer.Context, incomplete: str) -> list[str]:
    """The systems with compacted files in the root, and the home's own system."""
    found: set[str] = set()
    with contextlib.suppress(Exception):
        given = _settings(context)
        of_home = list(_of_home(context, lambda journal: [follow(given, agreed(journal))]))
        found |= {one.system_name for one in of_home}
        [settings] = of_home or [given]
        found |= set(filter(None, (system_of(path.name) for path in (settings.root / COMPACTED).iterdir())))
    return _starting(found, incomplete)


def _of_home(context: typer.Context, look: Callable[[Journal], Iterable[_Found]]) -> Iterator[_Found]:
    with contextlib.suppress(Exception):
        settings = _settings(context)
        if Journal.exists(settings.home):
            with contextlib.closing(Journal(settings.home, to_read=True)) as journal:
                yield from look(journal)


def _settings(context: typer.Context) -> Settings:
    given: dict[str, Any] = {name: context.params.get(name) for name in ("home", "root")}
    return Settings.load(given, origin="the command's options")


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
