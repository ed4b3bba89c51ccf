"""Calls of `waybill` that are written somewhere, held against the options that it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from waybill.cli.app import app


def refused(words: Sequence[str]) -> str:
    """What is wrong with the words after `waybill`: a command or an option that is not there; else empty."""
    command, path, left = typer.main.get_command(app), ["waybill"], list(words)
    context = typer.Context(command)
    while left and (listed := getattr(command, "list_commands", None)):
        if left[0] not in listed(context):
            return f"there is no command {' '.join([*path, left[0]])}"
        path.append(left.pop(0))
        own: Any = command
        command = own.get_command(context, path[-1])
        command = getattr(command, "loaded", command)
    if command.context_settings.get("ignore_unknown_options"):
        return ""  # they are for another program
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
    own_words = left[: left.index("--")] if "--" in left else left  # the others are for another program
    unknown = [one for one in own_words if one.startswith("-") and one.partition("=")[0] not in known]
    return f"{' '.join(path)} has no {', '.join(unknown)}" if unknown else ""
