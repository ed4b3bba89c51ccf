"""The home that a command works on: its journal, if there is one, and the settings of its runner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import typer

from waybill.cli import console
from waybill.cli.options import ORIGIN
from waybill.transport import Journal, Settings, WaybillError, locks
from waybill.transport.config import agreed, conflicts, follow
from waybill.transport.root import check_root


@contextlib.contextmanager
def existing_journal(settings: Settings) -> Iterator[Journal | None]:
    """Open the home's journal for one command; a home without one gives None and stays without one."""
    if not Journal.exists(settings.home):
        yield None
        return
    with contextlib.closing(Journal(settings.home)) as journal:
        yield journal


@contextlib.contextmanager
def needed_journal(settings: Settings) -> Iterator[Journal]:
    """Open the home's journal for a command that needs one."""
    with existing_journal(settings) as journal:
        if journal is None:
            raise WaybillError(f"there is no journal at {settings.home}; give its folder with --home")
        yield journal


def as_agreed(settings: Settings, journal: Journal | None) -> Settings:
    """These settings, with the home's own value for each one that the user did not give."""
    return follow(settings, agreed(journal)) if journal else settings


def agreed_settings(settings: Settings) -> Settings:
    """What `as_agreed` gives with the home's journal."""
    with existing_journal(settings) as journal:
        return as_agreed(settings, journal)


def checked_root(agreed: Settings) -> Path:
    """The root of these settings: the user's, which must be there, or the one that the home files into.

    Raises:
        RootError: at its path is another folder, or an older copy.
    """
    if agreed.origins["root"] == ORIGIN:
        if not agreed.root.is_dir():
            raise typer.BadParameter(
                f"there is no folder {agreed.root}; give the path of a root", param_hint="--root"
            )
        return agreed.root
    with existing_journal(agreed) as journal:
        if journal is not None:
            check_root(journal, agreed.root)
    return agreed.root


def tell_of_conflicts(settings: Settings) -> None:
    """Say on stderr where the home's live runner works with other settings than those that were given."""
    with existing_journal(settings) as journal:
        if journal is not None and not settings.strict and locks.is_held(settings.home):
            for conflict in conflicts(journal, settings):
                console.note(str(conflict))


def tell_of_poison(settings: Settings) -> None:
    """Say on stderr how many of the home's entries are poison, so that their records are in no answer."""
    from waybill.exporter.query import poison_note

    with existing_journal(settings) as journal:
        if journal is not None and (note := poison_note(journal)) is not None:
            console.note(note)
