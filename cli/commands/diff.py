"""`waybill diff`: in which two runs differ."""

from __future__ import annotations

import difflib
from typing import Annotated

from waybill.transport import Settings

from ..arguments import JsonObject, argument
from ..graph import show_answer, show_sql
from ..home import open_answers
from ..options import with_settings


@with_settings("home", "root", "system_name")
def diff(
    settings: Settings,
    *,
    first: Annotated[str, argument("RUN", "The id of a run.")],
    second: Annotated[str, argument("RUN", "The id of another run.")],
    as_json: JsonObject = False,
) -> None:
    """Show in which two runs differ: job, owners, SQL, inputs, outputs, and columns of datasets.

    Reads all stored events of both runs, in the archive and in the journal; of several events of a run, what
    the last one says counts. Columns and owners of a dataset are compared if both runs have it and say them.
    Exit code 2 if no event of a run is stored.

    Examples:
      waybill diff 01a1fd6a-9e75-7d78-870f-b23ff47e11e6 01a1fd6a-9e75-7d78-870f-b23ff47e11e7
    """
    with open_answers(settings, None) as (answers, _, _):
        found = answers.diff(first, second)
    rows = [(one.what, one.of, one.first, one.second) for one in found.differences if one.what != "sql"]
    if as_json or rows or not found.differences:
        nothing = "the two runs do not differ in this"
        show_answer(found, ("what", "of", "first", "second"), rows, nothing=nothing, as_json=as_json)
    for one in found.differences:
        if one.what == "sql" and not as_json:
            texts = ((one.first or "").splitlines(), (one.second or "").splitlines())
            show_sql(one.of, difflib.unified_diff(*texts, found.first, found.second, lineterm=""))
