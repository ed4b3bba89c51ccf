"""The findings of checks, one line each, with a fix where something could be better."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from waybill.transport.errors import sentence_of

from . import console


class Level(StrEnum):
    """The result of a check; `NOTE` means that it works, but could be better."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"


_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.BROKEN: "bold red"}


class Diagnosis(msgspec.Struct, frozen=True):
    """The finding of one check, in one line; `fix` says what to do, None if nothing needs to be done."""

    check: str
    level: Level
    says: str
    fix: str | None = None


def broken(check: str, error: Exception | str) -> Diagnosis:
    """An error as a finding: the error's sentence says what is wrong, then what to do."""
    says, _, fix = (error if isinstance(error, str) else sentence_of(error)).partition("; ")
    return Diagnosis(check, Level.BROKEN, says, fix or None)


def report(findings: Sequence[Diagnosis], *, as_json: bool) -> None:
    """Print the findings, and exit with code 1 if something is broken."""
    if as_json:
        console.json(findings)
    else:
        for finding in findings:
            level = (f"{finding.level.value:7}", _STYLES[finding.level])
            console.line(level, f" {finding.check}: {finding.says}")
            if finding.fix:
                console.line(f"        fix: {finding.fix}")
    console.fail_if(any(finding.level is Level.BROKEN for finding in findings))
