"""Jobs that have not run yet: that of an SQL file, and those of the models of a dbt project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.transport.errors import NotFoundError

from .analyzers import ask_about

if TYPE_CHECKING:
    from .analyzers import Catalog, Found

Question = tuple[str, "Found", "Catalog"]
"""An event to analyze with its key, and the columns that are known."""

_MANIFEST: Final = Path("target") / "manifest.json"
_CATALOG: Final = Path("target") / "catalog.json"
_DATASETS: Final = ("model", "seed", "snapshot", "source")


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

    def dataset(key: str) -> Found:
        facets = {"dbt_exposures": {"exposures": used_by[key]}} if key in used_by else {}
        return {"namespace": namespace, "name": tables[key], "facets": facets}

    compiled = [key for key, node in nodes.items() if key in tables and node.get("compiled_code")]
    if not compiled:
        raise NotFoundError(
            f"{project / _MANIFEST} has no compiled models; run `dbt compile` in {project}, which adds them"
        )
    for key in compiled:
        event = ask_about(key, nodes[key]["compiled_code"], dialect, namespace)
        sources = (nodes[key].get("depends_on") or {}).get("nodes") or ()
        event |= {"inputs": [dataset(one) for one in sources if one in tables], "outputs": [dataset(key)]}
        yield key, event, columns


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
