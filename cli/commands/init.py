"""`waybill init`: write a settings file with comments, and create the home that it names."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from waybill.facets.annotations import ALL
from waybill.transport import Journal, Settings, SettingsConflictError, SettingsError, locks
from waybill.transport.config import settings_files

from .. import console
from ..arguments import JsonObject, flag
from ..findings import Diagnosis, Level, report
from ..home import any_journal, as_worked_by, check_home, check_own_root, is_home, make_home
from ..options import ORIGIN, with_settings
from ..sample import DEFAULTS, sample, way
from .doctor import root_is_right, settings_agree, variables_are_settings

QUESTIONS: Final = {
    "home": "Folder of the journal, on a local disk",
    "root": "Folder of the provenance files and the archive",
    "provenance_enabled": "Write provenance files",
    "system_name": "Name of this system in the records",
    "marquez_url": "URL of a Marquez that receives all events, if you have one",
    "provenance_annotations_allowed": "Annotation keys that reach the records (* for all), with commas",
    "provenance_age_off_days": "Days after which `waybill age-off` removes a provenance file",
}
"""The questions, by setting. The last two have defaults that users often regret later."""

_ANNOTATIONS: Final = "provenance_annotations_allowed"

_ALWAYS: Final = ("home", "provenance_enabled", "system_name")
"""The settings that always get a value in the file."""


@with_settings(*QUESTIONS)
def init(
    settings: Settings,
    *,
    yes: Annotated[
        bool, flag("--yes", "Ask nothing: use the options and the proposed values.", "-y")
    ] = False,
    user: Annotated[
        bool, flag("--user", "Write the user's settings file, ~/.config/waybill/config.yaml.")
    ] = False,
    check: Annotated[bool, flag("--check", "Write nothing: report problems and risky defaults.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Ask for the main settings, write a commented waybill.yaml, and create the home.

    The file goes into the working folder and applies to every program that starts there. It has one line for
    each setting; a setting without a value is a comment that shows its default. An existing file is never
    overwritten: only the home that it names is created, if it is missing. An existing home keeps its agreed
    settings, and the command that changes them is shown.

    With --check, prints one line for each finding about the settings; `waybill doctor` checks the machine as
    well. Exit code 1 if something is broken. The JSON is then an array.

    Examples:
      waybill init
      waybill init --yes --home /var/lib/waybill --marquez-url http://marquez:5000
      waybill init --check
    """
    if check:
        report(list(_findings(settings)), as_json=as_json)
        return
    own, *of_user = settings_files()
    if user and not of_user:
        raise typer.BadParameter("this user has no settings folder; leave out --user")
    file = of_user[0] if user else own
    is_new = not file.exists()
    has_home = Journal.exists(settings.home)
    if not is_new and has_home:
        raise typer.BadParameter(
            f"{file} and the home {settings.home} exist already; change the settings in that file, and "
            "check with `waybill init --check` whether the home uses them"
        )
    if is_new and not yes:
        settings = _asked(settings)
    elif is_new and not settings.explicit("provenance_enabled"):
        settings = settings.with_values({"provenance_enabled": True}, ORIGIN)
    if is_new and not settings.explicit(_ANNOTATIONS):
        settings = settings.with_values({_ANNOTATIONS: ALL}, ORIGIN)
    to_apply = make_home(settings)
    if is_new:
        _write(file, settings)
    if as_json:
        written = str(file) if is_new else None
        console.json({"file": written, "home": str(settings.home), "to_apply": to_apply})
        return
    console.line(f"wrote {file}" if is_new else f"{file} is unchanged")
    console.line(
        f"the home {settings.home} is unchanged" if has_home else f"created the home {settings.home}"
    )
    if to_apply:
        console.note(
            f"the home {settings.home} has agreed on other values, and {_until(settings)}; "
            f"to change them now: `{to_apply}`"
        )
    console.note("`waybill init --check` lists defaults that you may want to change")


def _until(settings: Settings) -> str:
    """How long a home keeps its values where they differ from these."""
    if locks.is_held(settings.home):
        return "its live runner uses them"
    try:
        check_own_root(settings)
    except SettingsConflictError:
        return "a program with another root is refused"
    return "they apply until the next emit or flush from here"


def _asked(settings: Settings) -> Settings:
    """These settings, with the user's answer for each one that no option gives."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "there is no terminal to ask questions; give --yes, and an option for each value"
        )
    for name, question in QUESTIONS.items():
        if settings.origins[name] == ORIGIN:
            continue
        proposed = _proposed(settings, name)
        settings = typer.prompt(
            question,
            default=proposed,
            show_default=bool(proposed),
            value_proc=functools.partial(_answered, settings, name),
            err=True,
        )
    return settings


def _proposed(settings: Settings, name: str) -> str:
    if name == "provenance_enabled":
        return "no" if settings.explicit(name) and not settings.provenance_enabled else "yes"
    if name == "root" and not settings.explicit(name):
        return str(settings.home)
    if name == _ANNOTATIONS and not settings.explicit(name):
        return ALL
    value = settings.plain(name)
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _answered(settings: Settings, name: str, answer: str) -> Settings:
    try:
        return settings.with_values({name: answer}, ORIGIN) if answer else settings
    except SettingsError as error:
        raise typer.BadParameter(error.what) from None


def _write(file: Path, settings: Settings) -> None:
    chosen = {*_ALWAYS, *(name for name, origin in settings.origins.items() if origin == ORIGIN)}
    if settings.root == settings.home:
        chosen.discard("root")
    file.parent.mkdir(parents=True, exist_ok=True)
    # A URL may contain a password.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as new:
        new.write(sample({name: settings.plain(name) for name in sorted(chosen)}))


def _findings(settings: Settings) -> Iterator[Diagnosis]:
    """Check the settings for problems, and for defaults that users often regret later."""
    there = [str(file) for file in settings_files() if file.is_file()]
    if there:
        yield Diagnosis("file", Level.OK, " and ".join(there))
    else:
        yield Diagnosis("file", Level.NOTE, "there is no settings file here", "`waybill init` writes one")
    if is_home(settings.home):
        yield Diagnosis("home", Level.OK, f"it is at {settings.home}")
    elif settings.home.is_dir() and any(settings.home.iterdir()):
        check_home(settings, needed=True)  # raises: this is somebody else's folder
    else:
        says = f"there is no home at {settings.home} yet"
        yield Diagnosis(
            "home", Level.NOTE, says, "`waybill init` creates one, and so does a program that emits"
        )
    yield variables_are_settings(settings)
    yield settings_agree(settings)
    yield root_is_right(settings)
    with any_journal(settings, to_read=True) as journal:
        counts = as_worked_by(settings, journal)
    yield from _left_open(settings, counts)


def _left_open(settings: Settings, counts: Settings) -> Iterator[Diagnosis]:
    if counts.provenance_enabled:
        yield Diagnosis("provenance", Level.OK, "provenance files are written")
    else:
        fix = way(settings, "provenance_enabled", value=True)
        yield Diagnosis("provenance", Level.NOTE, "provenance_enabled is off: no files are written", fix)
    if counts.annotation_rule.keeps_all:
        yield Diagnosis("annotations", Level.OK, "all annotations reach the records")
    elif keys := sorted(counts.provenance_annotations_allowed):
        yield Diagnosis("annotations", Level.OK, f"{', '.join(keys)} reach the records")
    else:
        fix = way(settings, _ANNOTATIONS, "KEYS")
        yield Diagnosis("annotations", Level.NOTE, "no annotation of a program reaches the records", fix)
    days = counts.provenance_age_off_days
    says = f"`waybill age-off` removes provenance files after {days:g} days"
    if settings.explicit("provenance_age_off_days") or days != DEFAULTS["provenance_age_off_days"]:
        yield Diagnosis("age-off", Level.OK, says)
    else:
        fix = way(settings, "provenance_age_off_days", "DAYS")
        yield Diagnosis("age-off", Level.NOTE, f"{says}, the default", fix)
