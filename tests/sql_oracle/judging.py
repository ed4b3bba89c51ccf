"""What the analyzer of SQL says of a text, held against what a database says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from waybill.lineage.analyzers import SqlAnalyzer, ask_about, reason_of

_EXCUSE_NOTHING: Final = "what the function"
"""How notes begin that say nothing of the tables and columns that a text names."""
_SHOWN_MAX: Final = 5
Column = tuple[str, str]
"""A table's name and that of its column."""


@dataclass(frozen=True)
class Usage:
    """What a text uses, as one side says it.

    Attributes:
        tables: those that it reads or writes.
        columns: those that are used anywhere in it.
        made: the columns of what is made, in their order; None: the text makes nothing new.
        told: what the side says that it does not know.
        is_coarse: whether it names more columns than the text does.
    """

    tables: frozenset[str]
    columns: frozenset[Column]
    made: tuple[str, ...] | None = None
    told: tuple[str, ...] = ()
    is_coarse: bool = False


class Case(NamedTuple):
    """One text with both sides."""

    text: str
    truth: Usage
    read: Usage

    @property
    def faults(self) -> dict[str, list[object]]:
        """What the analyzer says wrong, by kind; what it leaves out is none if it says that it does."""
        truth, read = self.truth, self.read
        missing: dict[str, frozenset[Any]] = {
            "tables missing": truth.tables - read.tables,
            "columns missing": frozenset() if truth.is_coarse else truth.columns - read.columns,
        }
        wrong: dict[str, frozenset[Any]] = {
            "tables invented": read.tables - truth.tables,
            "columns invented": read.columns - truth.columns,
            **({} if read.told else missing),
        }
        found: dict[str, list[object]] = {kind: [*sorted(names)] for kind, names in wrong.items() if names}
        if not read.told and truth.made is not None and truth.made != read.made:
            found["columns misnamed"] = [(truth.made, read.made)]
        return found

    def __str__(self) -> str:
        return f"\n{self.text}\n  {self.faults} {self.read.told}"


@dataclass
class Tally:
    """What became of all texts of a run."""

    texts: int = 0
    told: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[Case] = field(default_factory=list)

    def add(self, case: Case) -> None:
        """Count one."""
        self.texts += 1
        self.told += bool(case.read.told and case.truth.tables)
        self.faults.update({kind: len(names) for kind, names in case.faults.items()})
        if case.faults:
            self.wrong.append(case)

    def __str__(self) -> str:
        kinds = "".join(f", {number} {kind}" for kind, number in sorted(self.faults.items()))
        shortest = sorted(self.wrong, key=lambda case: len(case.text))[:_SHOWN_MAX]
        head = f"{self.texts} texts, {len(self.wrong)} wrong, {self.told} told{kinds}"
        return "\n".join([head, *map(str, shortest)])


def ask(
    text: str, dialect: str, within: str, catalog: Mapping[str, Mapping[str, str]], written: str | None = None
) -> Usage:
    """What the analyzer says of a text.

    Args:
        text: the statements.
        dialect: theirs.
        within: the database and schema of a table that the text names without them.
        catalog: the columns of each table with their types, by its whole name.
        written: the table that it writes; None: it is a query.
    """
    store, target = f"{dialect}://store", written or f"{within}.made"
    event = ask_about("job", text, dialect, store, within)
    if written is None:
        event["outputs"] = [{"namespace": store, "name": target}]
    try:
        found = SqlAnalyzer().analyze(event, {(store, name): columns for name, columns in catalog.items()})
    except Exception as error:  # noqa: BLE001 - whoever asks is told
        return Usage(frozenset(), frozenset(), told=(f"{type(error).__name__}: {str(error)[:200]}",))
    found = found or {"inputs": [], "outputs": [], "job": {"facets": {}}}
    fold = str.lower if dialect == "sqlite" else str  # SQLite does not distinguish small and capital letters
    columns, made = set[Column](), dict[str, tuple[str, ...]]()
    for output in found["outputs"]:
        lineage = output["facets"]["columnLineage"]
        made[fold(output["name"])] = tuple(map(fold, lineage["fields"]))
        used = [one for of_column in lineage["fields"].values() for one in of_column["inputFields"]]
        columns |= {(fold(one["name"]), fold(one["field"])) for one in (*used, *lineage.get("dataset", ()))}
    tables = {fold(one["name"]) for one in (*found["inputs"], *found["outputs"])} - {f"{within}.made"}
    notes = tuple(one for one in reason_of(found).split("; ")[1:] if not one.startswith(_EXCUSE_NOTHING))
    return Usage(frozenset(tables), frozenset(columns), made.get(fold(target)), notes)
