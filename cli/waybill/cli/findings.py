"""What checks find, shown as one line each, with a remedy where something could be better."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec
import typer

from waybill.cli import console


class Level(StrEnum):
    """The result of a check; with `NOTE` it works, but not as well as it could."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"


_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.BROKEN: "bold red"}


class Diagnosis(msgspec.Struct, frozen=True):
    """What one check found, in one line; `mend` is what to do about it, None if nothing needs to be done."""

    check: str
    level: Level
    says: str
    mend: str | None = None


def broken(check: str, error: Exception | str) -> Diagnosis:
    """The finding that an error is: its sentence says what is wrong, then what to do."""
    says, _, mend = str(error).partition("; ")
    return Diagnosis(check, Level.BROKEN, says, mend or None)


def report(findings: Sequence[Diagnosis], *, as_json: bool) -> None:
    """Print the findings, and exit with code 1 when something is broken."""
    if as_json:
        console.json(findings)
    else:
        for finding in findings:
            level = (f"{finding.level.value:7}", _STYLES[finding.level])
            console.line(level, f" {finding.check}: {finding.says}")
            if finding.mend:
                console.line(f"        mend: {finding.mend}")
    if any(finding.level is Level.BROKEN for finding in findings):
        raise typer.Exit(console.EXIT_FAILED)
