"""Ways to change a setting: the line to write or the command to run, ready to paste."""

from __future__ import annotations

from waybill.transport import Journal, Settings, locks
from waybill.transport.config import DESTINATIONS, apply_command

from .options import ORIGIN
from .sample import line_of


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
