"""The settings as a commented YAML file, for `waybill init`, and ways to change one, ready to paste."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waybill.transport import Journal, Settings, locks
from waybill.transport.config import DESTINATIONS, SETTINGS, apply_command

from .options import ORIGIN


def way(settings: Settings, name: str, value: object) -> str:
    """Instructions that give a setting this value from now on.

    A value that somebody gave must be changed where it was given, since it applies again with the next emit;
    other values are the home's, if there is one. A live runner does not adopt changes by itself, and no file
    changes where a home's events go.
    """
    origin = settings.origins[name]
    command = f"`{apply_command(settings.home, {name: value})}`"
    line = f"`{line_of(name, value)}`"
    if settings.found_by_place(name):
        first = f"write {line} into {origin}"
    elif settings.explicit(name) and origin != ORIGIN:
        first = f"set `{origin.removeprefix('environment ')}={value}`"
    elif Journal.exists(settings.home):
        return command
    else:
        return f"write {line} into waybill.yaml"
    is_kept = Journal.exists(settings.home) and settings.found_by_place(name) and name in DESTINATIONS
    return f"{first}, then {command}" if is_kept or locks.is_held(settings.home) else first


_HEAD: Final = """\
# Settings of Waybill. A line without the sign # counts, unless an option or the environment says otherwise.
# `waybill settings` shows what counts and why, `waybill init --check` what is better changed.
# Pages such as docs/marquez.md are in Waybill's source repository.
"""

DEFAULTS: Final[Mapping[str, Any]] = {
    field.name: field.default for field in msgspec.structs.fields(Settings) if field.name in SETTINGS
}
"""The default of each setting; no value for one that depends on the machine."""


def sample(values: Mapping[str, Any]) -> str:
    """A file with a line for each setting: its value, or else its default as a comment.

    Args:
        values: plain JSON values, by the names of the settings.
    """
    parts = [_HEAD]
    for name, setting in SETTINGS.items():
        told = f"{setting.help} [default: {setting.default}]" if setting.default else setting.help
        if name in values:
            line = line_of(name, values[name])
        else:
            default = DEFAULTS[name]
            has_default = isinstance(default, (str, bool, int, float))
            line = f"# {line_of(name, default) if has_default else f'{name}: {setting.metavar}'}"
        parts.append(f"\n# {told}\n{line}\n")
    return "".join(parts)


def line_of(name: str, value: object) -> str:
    """A setting with its value, as a line of YAML."""
    import yaml

    return yaml.safe_dump({name: value}, allow_unicode=True, sort_keys=False, width=10_000).rstrip("\n")
