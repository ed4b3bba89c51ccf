"""`waybill duplicates`: the files with the same content."""

from __future__ import annotations

from waybill.transport import Settings
from waybill.transport.process import leave_numpy_out

from .. import console
from ..arguments import Csv, JsonLines
from ..home import open_answers
from ..options import with_settings
from ..records import as_plain, instant_of, iso


@with_settings("home", "root", or_exported=True)
def duplicates(
    settings: Settings, exported: str | None, *, as_json: JsonLines = False, as_csv: Csv = False
) -> None:
    """List the files that have the same content as another file.

    Only files whose fingerprints were recorded, as the Tracker does if asked. Files with the same fingerprint
    are beside each other, in the order in which they arrived. "forced" means that the program was told to
    process the file again. With --json, each line has one fingerprint and its files.

    Examples:
      waybill duplicates
    """
    leave_numpy_out()
    with open_answers(settings, exported) as (answers, _, _):
        alike = answers.duplicates()
    for note in answers.notes:
        console.note(note)
    files = [one for several in alike for one in several]
    if as_json:
        for several in alike:
            console.json({"fingerprint": several[0].fingerprint, "files": as_plain(several)})
    elif files or as_csv:
        written = iso if as_csv else instant_of
        rows = (
            (
                one.fingerprint,
                written(one.created_ms),
                one.filename,
                one.system_name,
                one.did,
                "forced" if one.forced else "",
            )
            for one in files
        )
        columns = (
            "fingerprint",
            "created" if as_csv else "created (UTC)",
            "filename",
            "system",
            "did",
            "forced",
        )
        console.table(columns, rows, as_csv=as_csv)
    if not files:
        console.note("no two files with a fingerprint have the same content")
