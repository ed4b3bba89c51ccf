"""``python -m waybill.cli.reference``: writes `docs/cli.md` and the README's settings from their own help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import msgspec
import typer
from typer.core import TyperGroup

from waybill.cli.app import app
from waybill.transport import Settings
from waybill.transport.config import SETTINGS

PAGE: Final = Path("docs") / "cli.md"
README: Final = Path("README.md")

TABLE: Final = re.compile(r"^\| setting \|.*?\n(?!\|)", re.MULTILINE | re.DOTALL)
"""The table of settings in the README, with the line end after its last row."""

_WIDTH: Final = 78
"""The width of the text on a terminal of 80 columns."""

_HEAD: Final = """\
# The `waybill` command

This page is the `--help` of each command; `python -m waybill.cli.reference` writes it.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed, or something broken was found: a flush that a backend holds up, a check of `doctor` that fails |
| 2 | invalid command line or setting |
| 130 | interrupted with Ctrl-C |

Results go to stdout; progress, remarks and errors go to stderr. An error is one sentence that ends with what
to do. If the output is not a terminal, tables become lines with tabs, without colours and progress bars;
`--json` is for programs. `waybill --install-completion` completes commands and options in bash, zsh, fish and
PowerShell.
"""


def commands() -> list[str]:
    """The names of all commands, in the order of the help, each after the name of its group."""
    return [title for title, _ in _walk(_context())]


def reference() -> str:
    """The page."""
    context = _context()
    parts = [_HEAD, _section("waybill", context.command.get_help(context))]
    parts += [_section(f"waybill {title}", own.command.get_help(own)) for title, own in _walk(context)]
    return "\n".join(parts)


def settings_table() -> str:
    """The README's table of settings."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, setting in SETTINGS.items():
        meaning = re.sub(r"docs/\w+\.md", r"[\g<0>](\g<0>)", setting.help)
        meaning = re.sub(r"'([a-z-]+)'", r"`\1`", meaning)
        rows.append(f"| `{name}` | {setting.default or _shown(defaults[name])} | {meaning} |")
    return "\n".join([*rows, ""])


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "off"  # a switch that is on by default says so in words
    return f"{default:,g}" if isinstance(default, (int, float)) else str(default or "none")


def _context() -> typer.Context:
    group = typer.main.get_command(app)
    return typer.Context(group, info_name="waybill", terminal_width=_WIDTH, **group.context_settings)


def _walk(context: typer.Context, before: str = "") -> Iterator[tuple[str, typer.Context]]:
    for name, command in cast("TyperGroup", context.command).commands.items():
        own = typer.Context(command, parent=context, info_name=name, terminal_width=_WIDTH)
        if isinstance(command, TyperGroup):
            if command.invoke_without_command:
                yield f"{before}{name}", own
            yield from _walk(own, f"{before}{name} ")
        else:
            yield f"{before}{name}", own


def _section(title: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return f"## {title}\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    README.write_text(TABLE.sub(lambda _: settings_table(), README.read_text(encoding="utf-8")), "utf-8")
