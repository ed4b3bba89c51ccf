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
    r"\W*((?:Execute )?\w+)"
)
_COMMAND: Final = re.compile(
    r"(?:Execute |Alter|Append|Atomic|Create|Delete|Drop|Insert|Merge|Optimize|Overwrite|Refresh|Rename"
    r"|Replace|Save|Truncate|Update|Write)(?!Files\b)"
)
_WRITES_NOTHING: Final = re.compile(r"Execute (?:\w*View\w*|(?:Cache|Describe|Explain|Set|Show)\w*)")
_FILES: Final = re.compile(
    r"Execute InsertIntoHadoopFsRelationCommand(?: |\n(?:Input.*\n|Output.*\n)*Arguments: )"
    r"(.+?), (?:\[[^\]]*\], )?(?:false|true), "
)
_OPTION: Final = re.compile(r"Arguments: .*?\bpath=([^\],]+)[\],]")
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


def target_of(plan: str) -> DatasetName | None:
    """The folder that an execution writes files to, named as the listener names it; None if it names none."""
    if files := _FILES.search(plan):
        return _dataset(files[1])
    name = command_of(plan)
    option = _OPTION.search(_paragraph(plan, name)) if name else None
    return _dataset(option[1]) if option else None


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
    return plan.partition(f") {name.removeprefix('Execute ')}\n")[2].partition("\n\n")[0]


def _dataset(path: str) -> DatasetName:
    whole = _URI.fullmatch(path)
    scheme, authority, name = whole.groups(default="") if whole else ("", "", path)
    if scheme.startswith(_OBJECT_STORES):
        # Hadoop has several names for the same store of S3.
        namespace = f"{'s3' if scheme.startswith('s3') else scheme}://{authority}"
        return DatasetName(namespace, name.strip("/") or "/")
    namespace = f"{scheme}://{authority}" if authority else scheme or "file"
    return DatasetName(namespace, name.rstrip("/") or "/")
