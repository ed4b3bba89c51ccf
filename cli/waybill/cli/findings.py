"""What checks find: a line for each, with a mend where something could be better."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec
import typer

from waybill.cli import console


class Level(StrEnum):
    """How a check went: `NOTE` works, but not as well as it could."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"


_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.BROKEN: "bold red"}


class Diagnosis(msgspec.Struct, frozen=True):
    """What one check found.

    Attributes:
        check: what was looked at.
        level: how it went.
        says: what is there, in one line.
        mend: what to do about it; None where nothing needs to be done.
    """

    check: str
    level: Level
    says: str
    mend: str | None = None


def broken(check: str, error: Exception | str) -> Diagnosis:
    """The finding of an error's sentence, whose end is the way out."""
    says, _, mend = str(error).partition("; ")
    return Diagnosis(check, Level.BROKEN, says, mend or None)


def report(findings: Sequence[Diagnosis], *, as_json: bool) -> None:
    """Show them.

    Raises:
        typer.Exit: with code 1, where something is broken.
    """
    if as_json:
        console.json(findings)
    else:
        for finding in findings:
            _show(finding)
    if any(finding.level is Level.BROKEN for finding in findings):
        raise typer.Exit(console.EXIT_FAILED)


def _show(finding: Diagnosis) -> None:
    level = (f"{finding.level.value:7}", _STYLES[finding.level])
    console.line(level, f" {finding.check}: {finding.says}")
    if finding.mend:
        console.line(f"        mend: {finding.mend}")
