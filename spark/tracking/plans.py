"""Parsing Spark's text of an execution's plan: which command it is, and where it writes.

Spark prints the tree of operators first, its root in the first line, and then a paragraph for each operator,
with its arguments; with another `spark.sql.ui.explainMode` than its default, the arguments are in the tree.
Where Spark adapts a plan as it runs, the root is below a line that says so. A command's name begins with a
verb, a query's operator is a noun.
"""

from __future__ import annotations

import re
from typing import Final

from waybill.facets.event import DatasetName

_ROOT: Final = re.compile(
    r"== Physical Plan ==\n"
    r"(?:AdaptiveSparkPlan\b.*\n(?:\+- == (?:Current|Final) Plan ==\n)?(?:\W*ResultQueryStage\b.*\n)?)?"
    r"(?:\W*Union\b.*\n(?=\W*Execute ))?"  # as of an INSERT into several tables
    r"\W*((?:Execute )?\w+)"
)
_COMMAND: Final = re.compile(
    r"(?:Execute |Alter|Append|Atomic|Call\b|Create|Delete|Drop|Insert|Merge|Optimize|Overwrite|Refresh"
    r"|Rename|Replace|Save|Truncate|Update|Write)(?!Files\b)"
)
_WRITES_NOTHING: Final = re.compile(r"Execute (?:\w*View\w*|(?:Cache|Describe|Explain|Set|Show)\w*)")
_NO_DATA: Final = re.compile(
    r"(?:Execute )?(?:Add|Alter|Analyze|Clear|Create(?:Database|Function|Index|Namespace|OrReplace)|Drop|List"
    r"|Refresh|Rename|Repair|Reset|Unc|Use|Vacuum)"
)
"""Commands that change no rows: of catalogs, of properties and of files that no table has any more."""
_FILES: Final = re.compile(
    r"Execute InsertIntoHadoopFsRelationCommand(?: \[codegen id : \d+\])?"
    r"(?: |\n(?:Input.*\n|Output.*\n)*Arguments: )"
    r"(.+?), (?:\[[^\]]*\], )?(?:false|true), "
)
_OPTION: Final = re.compile(r"Arguments: .*?\bpath=([^\],]+)[\],]")
_DELTA: Final = re.compile(
    r"(?:\bDelta\[version=-?\d+, |\bDeltaTableV2\([^,]*,|\bCloneTableCommand [^,]*, (?:`[^`]*`\.?)+, )"
    r"([a-z][a-z0-9+.-]*:/[^,\])]*)"
)
_NAME: Final = re.compile(
    r"(?:`[^`]+`\.)*`[^`]+`|(?:(?<=Arguments: )|(?<=\btable=))[\w-]+(?:\.[\w-]+)+(?=,|$)", re.MULTILINE
)
_SCAN: Final = re.compile(
    r"^\(\d+\) (?:Batch)?Scan (?:DeltaCDFRelation\(.*?\bpath=(?P<log>[^,]+)/_delta_log\b"
    r"|(?:\w+ )?(?P<table>[\w-]+(?:\.[\w-]+)+)(?: |$|\n)|[^\n]*\n(?:(?!Location)\w.*\n)*"
    r"Location: (?!DeltaLog)\w+ ?(?:\(\d+ paths\))?\[(?P<path>[^,\]]+))",
    re.MULTILINE,
)
"""What a plan reads: the table that a scan names, else the first of its folders."""
_PARTITION: Final = re.compile(r"(?:/[^/=]+=[^/]*)+\Z")
_SUBQUERIES: Final = "===== Subqueries ====="
_AROUND: Final = re.compile(
    r"Execute (?:CreateDataSourceTableAsSelect|CreateHiveTableAsSelect|InsertIntoDataSourceDir|SaveAsV1Table)"
)
"""Commands whose files another execution writes within them."""
_URI: Final = re.compile(r"(?:([a-z][a-z0-9+.-]*):)?(?://([^/]*))?(.*)", re.DOTALL | re.IGNORECASE)
_IGNORES: Final = re.compile(r", Ignore(?:, \[|$)", re.MULTILINE)
"""The mode of a write among its arguments."""
_CREATES: Final = re.compile(r"(?:Execute )?Create(?:DataSource)?Table(?:Like)?(?:Command)?")
_TRANSACTION: Final = re.compile(r"\btxnversion=", re.IGNORECASE)

EXISTS: Final = "its output already exists"
COMMITTED: Final = "its transaction was committed before"

_OBJECT_STORES: Final = ("s3", "gs", "wasb", "abfs")


def command_of(plan: str) -> str | None:
    """The command that an execution is, as ``Execute MergeIntoCommand``; None for a query."""
    root = _ROOT.search(plan)
    name = root[1] if root else ""
    return name if _COMMAND.match(name) and not _WRITES_NOTHING.match(name) else None


def writes(plan: str) -> bool:
    """Whether an execution is a command that changes rows."""
    name = command_of(plan)
    return name is not None and not _NO_DATA.match(name)


def is_around_files(plan: str) -> bool:
    """Whether a command has another execution write its rows, which says how that went."""
    name = command_of(plan) or ""
    # The one within a command of Delta's ends without an error when the command fails.
    is_of_delta = "DeltaCatalog@" in plan
    return _AROUND.match(name) is not None or (name.endswith("TableAsSelect") and not is_of_delta)


def is_discarded(plan: str) -> bool:
    """Whether a command keeps nothing: it only makes Spark compute all rows, or prints them."""
    return "noop-table" in plan or "ConsoleWriter[" in plan


def targets_of(plan: str) -> list[DatasetName]:
    """The folders that an execution writes to, named as the listener names them; empty if it names none."""
    name = command_of(plan)
    paths = _FILES.findall(plan)
    if name is not None and not paths:
        said = _paragraph(plan, name)
        option, table = _OPTION.search(said), _NAME.search(said)
        delta = _DELTA.search(said) or _DELTA.search(_paragraph(plan, "ResolvedTable"))
        if option or delta:
            paths = [(option or delta)[1]]  # type: ignore[index]
        elif table is not None and "`/" in table[0]:  # as `parquet`.`/a/path`
            paths = [table[0].partition(".`")[2].strip("`")]
    return list(dict.fromkeys(map(dataset_at, paths)))


def table_of(plan: str) -> str | None:
    """The table that a command names, quoted where the plan does; None if it names none."""
    name = command_of(plan)
    found = _NAME.search(_paragraph(plan, name)) if name is not None else None
    return None if found is None else found[0]


def sources_of(plan: str) -> list[DatasetName | str]:
    """What an execution reads as far as its plan says: folders, and tables by their names."""
    found: list[DatasetName | str] = []
    for scan in _SCAN.finditer(plan):
        path = scan["log"] or scan["path"]
        found.append(scan["table"] if path is None else dataset_at(_PARTITION.sub("", path)))
    return list(dict.fromkeys(found))


def subqueries_of(plan: str) -> str:
    """The part of a plan with the subqueries whose value it needs first."""
    return plan.partition(_SUBQUERIES)[2]


def why_nothing(plan: str) -> str | None:
    """Why a command may have had nothing to write, according to its plan; None if it always writes."""
    name = command_of(plan)
    if name is None:
        return None
    if "TableAsSelect" in name or _IGNORES.search(plan):
        return EXISTS
    # Delta's plan of a write to a table does not say whether it is of a transaction.
    is_of_delta = name.endswith("ExecV1") and "DeltaTableV2(" in plan
    return COMMITTED if is_of_delta or _TRANSACTION.search(plan) else None


def hides_write(plan: str) -> bool:
    """Whether neither plan nor jobs tell if a command wrote: files in mode `ignore`, `IF NOT EXISTS`."""
    name = command_of(plan) or ""
    if name.endswith("InsertIntoHadoopFsRelationCommand"):
        return _IGNORES.search(plan) is not None
    return _CREATES.fullmatch(name) is not None and _paragraph(plan, name).endswith(", true")


def reads_delta_log(plan: str) -> bool:
    """Whether an execution is one of Delta's own, which reads the log of a table."""
    return "Delta Table State" in plan or "DeltaLogFileIndex" in plan


def names_path(plan: str, name: str) -> bool:
    """Whether a plan names a dataset, and not only one whose name begins or ends with that name."""
    before = r"(?:^|[\s:=,`'\"(\[]|//[^/\s]*" + ("" if name.startswith("/") else r"[./]") + ")"
    return re.search(before + re.escape(name.rstrip("/")) + r"/?(?![\w./-])", plan) is not None


def _paragraph(plan: str, name: str) -> str:
    """What a plan says of a command below the tree."""
    head = rf"\) {re.escape(name.removeprefix('Execute '))}(?: \[codegen id : \d+\])?\n"
    found = re.search(head, plan)
    return "" if found is None else plan[found.end() :].partition("\n\n")[0]


def dataset_at(path: str) -> DatasetName:
    """The dataset at a path, named as the listener names it."""
    whole = _URI.fullmatch(path)
    scheme, authority, name = whole.groups(default="") if whole else ("", "", path)
    if scheme.startswith(_OBJECT_STORES):
        # Hadoop has several names for the same store of S3.
        namespace = f"{'s3' if scheme.startswith('s3') else scheme}://{authority}"
        return DatasetName(namespace, name.strip("/") or "/")
    namespace = f"{scheme}://{authority}" if authority else scheme or "file"
    return DatasetName(namespace, name.rstrip("/") or "/")
