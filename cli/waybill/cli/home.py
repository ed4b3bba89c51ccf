"""A home as a command finds it: its journal, where there is one, and the settings its runner works by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import typer

from waybill.cli import console
from waybill.cli.options import ORIGIN
from waybill.transport import Journal, Settings
from waybill.transport.config import agreed, follow


@contextlib.contextmanager
def existing_journal(settings: Settings) -> Iterator[Journal | None]:
    """Open the home's journal for one command; None where there is none, and none is made.

    Raises:
        JournalError: what is there cannot be used.
    """
    if not Journal.exists(settings.home):
        yield None
        return
    journal = Journal(settings.home)
    try:
        yield journal
    finally:
        journal.close()


@contextlib.contextmanager
def needed_journal(settings: Settings) -> Iterator[Journal]:
    """Open the home's journal for one command, which fails where there is none.

    Raises:
        Exit: there is none; the terminal says so.
        JournalError: what is there cannot be used.
    """
    with existing_journal(settings) as journal:
        if journal is None:
            console.error(f"there is no journal at {settings.home}; give its folder with --home")
            raise typer.Exit(console.EXIT_FAILED)
        yield journal


def existing_root(settings: Settings, journal: Journal | None) -> Path:
    """The root that the home's runner writes, or that the command was given.

    Raises:
        BadParameter: one was given that is not there. That of a runner may not be, before its first file.
    """
    agreed = as_agreed(settings, journal)
    if agreed.origins["root"] == ORIGIN and not agreed.root.is_dir():
        raise typer.BadParameter(
            f"there is no folder {agreed.root}; give the path of a root", param_hint="--root"
        )
    return agreed.root


def as_agreed(settings: Settings, journal: Journal | None) -> Settings:
    """The settings with the home's own in place of those that nobody gave."""
    return follow(settings, agreed(journal)) if journal else settings
