"""Jobs that have not run yet: that of an SQL file, and those of the models of a dbt project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.transport.errors import NotFoundError

from .analyzers import LINEAGE_OF_JOB, SqlAnalyzer, ask_about, facet_of, inferred, named_in, unread_of

if TYPE_CHECKING:
    from .analyzers import Catalog, Found, Result

Question = tuple[str, "Found", "Catalog"]
"""An event to analyze with its key, and the columns that are known."""

_MANIFEST: Final = Path("target") / "manifest.json"
_CATALOG: Final = Path("target") / "catalog.json"
_MADE_BY_TEXT: Final = ("model", "snapshot")
_DATASETS: Final = (*_MADE_BY_TEXT, "seed", "source")


def read_plan(place: Path, *, dialect: str | None, namespace: str | None, within: str) -> list[Question]:
    """Read the jobs of an SQL file, or of the folder of a dbt project.

    Args:
        place: the file or the folder.
        dialect: that of the SQL; None: that of the project, or none in particular.
        namespace: that of the tables; None: the dialect's name.
        within: the database and schema of a table that an SQL file names without them.

    Raises:
        NotFoundError: there is none, or dbt has not compiled it.
    """
    if place.is_dir():
        return list(_read_dbt(place, dialect, namespace))
    if not place.is_file():
        raise NotFoundError(f"there is no file {place}; give an SQL file, or the folder of a dbt project")
    text = place.read_text(encoding="utf-8-sig", errors="replace")
    return [(place.name, ask_about(place.name, text, dialect, namespace or dialect or "sql", within), {})]


def settle(question: Question, result: Result) -> list[Found]:
    """What was found of a job; if not all of its text was read, with what dbt says that it depends on."""
    _, asked, _ = question
    found = {one.analyzer: msgspec.json.decode(one.event) for one in result.findings if one.event}
    read = found.pop(SqlAnalyzer.name, None)
    declared = [named_in(one) for one in asked.get("inputs") or ()]
    made = [named_in(one) for one in asked.get("outputs") or ()]
    unread = unread_of(read) if read else result.problems or ["it has no compiled SQL"] * len(made)
    if not unread:
        return result.events
    if read is None:
        used = [{**one, "type": "DATASET"} for one in declared]
        entries = [{**one, "type": "DATASET", "inputs": used} for one in made]
        facets = inferred("drawn from depends_on" if made else "its text is not read", unread=unread)
        lineage = {"lineage": facet_of(LINEAGE_OF_JOB, entries=entries)} if made else {}
        read = {"job": {**asked["job"], "facets": facets | lineage}, "inputs": declared}
    else:
        added = [one for one in declared if one not in read["inputs"]]
        read["inputs"] += added
        for one in read["outputs"]:
            if "lineage" in one["facets"]:
                one["facets"]["lineage"]["inputs"] += [{**used, "type": "DATASET"} for used in added]
    return [read, *found.values()]


def _read_dbt(project: Path, dialect: str | None, namespace: str | None) -> Iterator[Question]:
    manifest = _read(project / _MANIFEST)
    if manifest is None:
        raise NotFoundError(
            f"{project / _MANIFEST} is missing or damaged; run `dbt compile` in {project}, which writes it"
        )
    dialect = dialect or (manifest.get("metadata") or {}).get("adapter_type")
    namespace = namespace or dialect or "dbt"
    nodes = {**(manifest.get("sources") or {}), **(manifest.get("nodes") or {})}
    tables = {key: _table(node) for key, node in nodes.items() if _is_table(node)}
    known = _read(project / _CATALOG) or {}
    columns = {
        (namespace, tables[key]): {name: str(one.get("type") or "") for name, one in node["columns"].items()}
        for key, node in {**(known.get("nodes") or {}), **(known.get("sources") or {})}.items()
        if key in tables and node.get("columns")
    }
    used_by: dict[str, list[Found]] = {}
    for exposure in (manifest.get("exposures") or {}).values():
        for key in (exposure.get("depends_on") or {}).get("nodes") or ():
            used_by.setdefault(key, []).append({"name": exposure["name"], "type": exposure.get("type")})

    def dataset(key: str, job: str) -> Found:
        told = used_by.get(key) if teller[key] == job else None
        facets = {"dbt_exposures": {"exposures": told}} if told else {}
        return {"namespace": namespace, "name": tables[key], "facets": facets}

    def sources(key: str) -> list[str]:
        """The tables that a node depends on, also through others that are no tables."""
        found, waiting = dict[str, None](), [key]
        while waiting:
            used = (nodes.get(waiting.pop()) or {}).get("depends_on") or {}
            new = [one for one in used.get("nodes") or () if one not in found]
            found |= dict.fromkeys(new)
            waiting += [one for one in new if one not in tables]
        return [one for one in found if one in tables]

    made = [key for key in tables if nodes[key]["resource_type"] in _MADE_BY_TEXT]
    if not any(nodes[key].get("compiled_code") for key in made):
        raise NotFoundError(
            f"{project / _MANIFEST} has no compiled models; run `dbt compile` in {project}, which adds them"
        )
    # The exposures of a table are told once: by the job that makes it, else by the first one that reads it.
    teller = {key: key for key in made}
    for key in made:
        teller |= {one: key for one in sources(key) if one not in teller}
    for key in made:
        is_sql = nodes[key].get("language") != "python"
        event = ask_about(key, (nodes[key].get("compiled_code") or "") * is_sql, dialect, namespace)
        inputs = [dataset(one, key) for one in sources(key)]
        yield key, event | {"inputs": inputs, "outputs": [dataset(key, key)]}, columns


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _is_table(node: Mapping[str, Any]) -> bool:
    materialized = (node.get("config") or {}).get("materialized")
    return node.get("resource_type") in _DATASETS and materialized != "ephemeral"


def _table(node: Mapping[str, Any]) -> str:
    """A node's dataset, as dbt's OpenLineage integration names it."""
    own = node.get("alias") or node.get("identifier") or node["name"]
    return ".".join(str(part) for part in (node.get("database"), node.get("schema"), own) if part)
