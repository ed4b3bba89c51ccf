"""Events of jobs and datasets, kept in a home: some in its index, the others in its journal only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from events import Named, members, named

from waybill.collector.endpoints import Readings
from waybill.lineage import Lineage
from waybill.lineage.analyzers import Worker
from waybill.lineage.index import analysis
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.config import obey

if TYPE_CHECKING:
    import pytest

    from waybill.lineage.answers import HomeAnswers

Told = bytes | Mapping[str, object]
"""An event, as bytes or by its members."""

NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
_SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"


def at(minute: float) -> str:
    """An instant so many minutes after noon, as events carry it."""
    return (NOON + timedelta(minutes=minute)).isoformat()


def at_ms(minute: float) -> int:
    """The same in milliseconds."""
    return int((NOON + timedelta(minutes=minute)).timestamp() * 1_000)


def dataset(
    name: str,
    namespace: str = "lake",
    *,
    types: Mapping[str, str] | None = None,
    derived: Mapping[str, Iterable[tuple[str, ...]]] | None = None,
    owners: Iterable[str] = (),
    same: Iterable[Named] = (),
    **facets: object,
) -> dict[str, Any]:
    """A dataset.

    Args:
        name: its name.
        namespace: its namespace.
        types: its columns with their types.
        derived: its columns with those that each comes from: a dataset of its namespace, a column and, where
            it is told, a type.
        owners: its owners.
        same: its other names.
        facets: what else is said of it.
    """
    if types is not None:
        facets["schema"] = {"fields": [{"name": one, "type": of} for one, of in types.items()]}
    if derived is not None:
        fields = {
            column: {"inputFields": [_used(namespace, *source) for source in sources]}
            for column, sources in derived.items()
        }
        facets["columnLineage"] = {"fields": fields}
    if owners:
        facets["ownership"] = {"owners": [{"name": owner} for owner in owners]}
    if same:
        facets["symlinks"] = {"identifiers": [{**named(one), "type": "TABLE"} for one in same]}
    return {"namespace": namespace, "name": name, "facets": facets}


def _used(namespace: str, name: str, column: str, of_type: str = "") -> dict[str, object]:
    how = {"transformations": [{"type": of_type}]} if of_type else {}
    return {"namespace": namespace, "name": name, "field": column, **how}


def ran(
    job: Named,
    reads: Sequence[Named] = (),
    writes: Sequence[Named] = (),
    minute: float = 0,
    kind: str = "COMPLETE",
    *,
    run: str = "",
    sql: str = "",
    dialect: str | None = None,
    facets: Mapping[str, object] | None = None,
    **of_job: object,
) -> dict[str, Any]:
    """An event of a run of a job, so many minutes after noon; `facets` are those of the run."""
    if sql:
        of_job["sql"] = {"query": sql, "dialect": dialect}
    told = {**named(job), "facets": of_job}
    run = run or f"{told['namespace']}/{told['name']} at {minute}"
    return members(run, kind, at(minute), job=told, inputs=reads, outputs=writes, facets=facets)


def said_of(one: Named, minute: float = 30, **facets: object) -> dict[str, Any]:
    """An event of a dataset alone, so many minutes after noon."""
    told = {"facets": facets, **named(one)}
    return {**_alone("DatasetEvent", minute), "dataset": told}


def planned(job: Named, reads: Sequence[Named] = (), writes: Sequence[Named] = ()) -> dict[str, Any]:
    """An event of a job without a run, half an hour after noon."""
    datasets = {"inputs": [*map(named, reads)], "outputs": [*map(named, writes)]}
    return {**_alone("JobEvent", 30), "job": named(job), **datasets}


def _alone(name: str, minute: float) -> dict[str, Any]:
    return {"eventTime": at(minute), "producer": "https://example.org/tests", "schemaURL": f"{_SCHEMA}{name}"}


def keep(home: Path, told: Iterable[Told]) -> Lineage:
    """Keep events; what the home answers from then on."""
    bodies = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in told]
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, body, "tests") for body in bodies)
    return Lineage.open(home)


def index(settings: Settings) -> None:
    """Have all that was kept in the index."""
    assert flush(settings).problems == {}


def keep_filed(settings: Settings, told: Sequence[Told], filed: int | None = None) -> Lineage:
    """Keep events, the first so many of which are in the index; None: all of them."""
    keep(settings.home, told[:filed])
    if filed != 0:
        index(settings)
    return keep(settings.home, [] if filed is None else told[filed:])


@contextmanager
def answers_of(home: Path) -> Iterator[HomeAnswers]:
    """What a collector of a home asks."""
    with closing(Journal(home)) as journal, closing(Readings(journal, obey(journal))) as readings:
        yield readings.begin().answers


def settings_in(folder: Path) -> Settings:
    """The settings of a home in an empty folder."""
    given = {"home": folder / "home", "system_name": "tests", "runner": "none"}
    return Settings.load(given, env={}, cwd=folder)


def install_analyzer(code: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Install an analyzer, the class of some code, for this process and those that it starts from now on."""
    [name] = re.findall(r"^class (\w+)", code, re.MULTILINE)
    module = name.lower()
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[waybill.analyzers]\n{module} = {module}:{name}\n")
    patch.syspath_prepend(folder)
    patch.setenv("PYTHONPATH", str(folder))
    patch.setattr(analysis, "Worker", Worker)  # the tests' own process has started
