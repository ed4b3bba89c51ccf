"""The settings as options: every command that uses a setting has an option of the same name."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from waybill.exporter.object_stores import is_url
from waybill.transport import Settings, SettingsError
from waybill.transport.config import OPTIONS, SETTINGS

from .commanding import SETTINGS_PANEL
from .completing import values_of

ORIGIN: Final = OPTIONS

EVERY: Final = tuple(SETTINGS)
"""Every setting, for commands that show or check them all."""

_OF_INTAKE: Final = {
    "listen",
    "event_logs",
    "event_logs_every_s",
    "log_format",
    "slis",
    "admit_name_chars",
    "admit_items",
    "admit_made_chars",
    "fingerprint_max_bytes",
}
RUNNING: Final = tuple(name for name in SETTINGS if name not in _OF_INTAKE)
"""Every setting that a runner uses, for commands that may become or start a runner."""


_FOLDERS: Final = ("home", "root")
"""The settings whose path must not be blocked by a file; the default root is the home."""


_OF_EXPORT: Final = " Or the URL of a destination of exports."


def with_settings(
    *names: str, or_exported: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each named setting, in this order, and the settings as first argument.

    With `or_exported`, `--root` also takes the URL of a destination of exports, which the command gets as
    second argument; it gets None if a root was given, or none.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def loaded(**given: Any) -> None:  # noqa: ANN401 - each is checked by its own option, or by `Settings.load`
            overrides = {name: given.pop(name) for name in names}
            url = overrides["root"] if or_exported and is_url(overrides["root"] or "") else None
            if url is not None:
                overrides["root"] = None
            settings = Settings.load(overrides, origin=ORIGIN)
            for name in _FOLDERS:
                if name in names:
                    _check_folder(settings, name)
            command(*((settings, url) if or_exported else (settings,)), **given)

        parameters = list(inspect.signature(command, eval_str=True).parameters.values())
        own = parameters[2 if or_exported else 1 :]
        options = [_option(name, more=_OF_EXPORT if or_exported and name == "root" else "") for name in names]
        loaded.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]  # which typer reads
        for hidden in parameters[: -len(own)]:
            loaded.__annotations__.pop(hidden.name, None)
        return loaded

    return decorate


def _check_folder(settings: Settings, name: str) -> None:
    """Raise a `SettingsError` if a file takes the place of a folder or of one of its parents."""
    folder: Path = getattr(settings, name)
    there = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if there.exists() and not there.is_dir():
        what = f"{there} is a file; give the path of a folder"
        raise SettingsError(name, str(folder), settings.origins[name], what)


def _option(name: str, *, more: str) -> inspect.Parameter:
    setting = SETTINGS[name]
    flag = f"--{name.replace('_', '-')}"
    # A switch has both forms, so that "off" can override an "on" from a file or the environment.
    is_switch = not setting.metavar
    info = typer.Option(
        f"{flag}/--no-{flag.removeprefix('--')}" if is_switch else flag,
        metavar=setting.metavar or None,
        help=f"{setting.help}{more}" + (f" [default: {setting.default}]" if setting.default else ""),
        show_default=False,
        autocompletion=values_of(name),
        rich_help_panel=SETTINGS_PANEL,
    )
    annotation = Annotated[bool | None, info] if is_switch else Annotated[str | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
