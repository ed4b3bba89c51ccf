"""``python docs/reference.py``: writes the pages for commands, settings and HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import typer
from typer.core import TyperGroup

from waybill.cli.app import app
from waybill.cli.commanding import Deferred
from waybill.cli.sample import DEFAULTS
from waybill.exporter.query import CONDITIONS
from waybill.transport.config import SETTINGS

PAGE: Final = Path("docs") / "cli.md"
HTTP_PAGE: Final = Path("docs") / "http.md"
HTML_PAGE: Final = Path("collector") / "http.html"
SETTINGS_PAGE: Final = Path("docs") / "settings.md"
COLLECTOR_PAGE: Final = Path("docs") / "collector.md"

_TABLE: Final = re.compile(r"^\| setting \|.*?\n(?!\|)", re.MULTILINE | re.DOTALL)
"""The table on the settings page, with the line end after its last row."""

_CONDITIONS_TABLE: Final = re.compile(r"^\| `waybill find` \|.*?\n(?!\|)", re.MULTILINE | re.DOTALL)
"""The table on the collector's page, with the line end after its last row."""

_WIDTH: Final = 78
"""The width of the text on a terminal of 80 columns."""

_HEAD: Final = """\
# The `waybill` command

This page is the `--help` of each command; `python docs/reference.py` writes it.

| exit code | meaning |
|---|---|
| 0 | done, even if nothing was found |
| 1 | failed, or found something broken: a backend holds up a flush, or a check of `doctor` fails |
| 2 | invalid command line or setting; something it names does not exist; an extra is not installed |
| 130 | interrupted with Ctrl-C |

Results go to stdout; progress, notes and errors go to stderr. An error is one sentence that ends with what to
do. If the output is not a terminal, tables become tab-separated lines, without colours or progress bars.
`--json` is for programs, and so is `--csv` where there is a table. In JSON, times are ISO 8601 in UTC with
milliseconds, such as `2026-01-31T23:59:59.999Z`; over HTTP, records have DeltaFi's epoch milliseconds.
`waybill spark submit` and `waybill dev logs` pass the output of another program through, so they have no
`--json`. After `waybill --install-completion`, the shell completes commands, options and their values (bash,
zsh, fish and PowerShell).
"""


def commands() -> list[str]:
    """The names of all commands, in the order of the help, each with its group's name in front."""
    return [title for title, _ in _walk(_context())]


def reference() -> str:
    """The page."""
    context = _context()
    parts = [_HEAD, _section("waybill", context.command.get_help(context))]
    parts += [_section(f"waybill {title}", own.command.get_help(own)) for title, own in _walk(context)]
    return "\n".join(parts)


def settings_page(page: str) -> str:
    """The settings page with its table updated."""
    return _TABLE.sub(lambda _: _settings_table(), page)


def _settings_table() -> str:
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, setting in SETTINGS.items():
        meaning = re.sub(r"docs/(\w+\.md)", r"[\1](\1)", setting.help)
        meaning = re.sub(r"'([a-z-]+)'", r"`\1`", meaning)
        rows.append(f"| `{name}` | {setting.default or _shown(DEFAULTS[name])} | {meaning} |")
    return "\n".join([*rows, ""])


def collector_page(page: str) -> str:
    """The collector's page with its table of conditions updated."""
    return _CONDITIONS_TABLE.sub(lambda _: _conditions_table(), page)


def _conditions_table() -> str:
    rows = ["| `waybill find` | over HTTP | of DeltaFi | `waybill.Query` | which records |", f"|{'---|' * 5}"]
    for one in CONDITIONS:
        deltafi = " and ".join(f"`{name}`" for name in one.deltafi)
        names = f"`--{one.option}` | `{one.parameter}` | {deltafi} | `{one.field}`"
        rows.append(f"| {names} | {one.help.replace('* and ?', '`*` and `?`')} |")
    return "\n".join([*rows, ""])


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "off"  # a switch that is on by default says so in words
    return f"{default:,}".removesuffix(".0") if isinstance(default, (int, float)) else str(default or "none")


def _context() -> typer.Context:
    group = typer.main.get_command(app)
    return typer.Context(group, info_name="waybill", terminal_width=_WIDTH, **group.context_settings)


def _walk(context: typer.Context, before: str = "") -> Iterator[tuple[str, typer.Context]]:
    for name, listed in cast("TyperGroup", context.command).commands.items():
        command = listed.loaded if isinstance(listed, Deferred) else listed
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
    from http_page import html_page, http_page  # which load the collector

    HTTP_PAGE.write_text(http_page(), encoding="utf-8")
    HTML_PAGE.write_text(html_page(), encoding="utf-8")
    SETTINGS_PAGE.write_text(settings_page(SETTINGS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    COLLECTOR_PAGE.write_text(collector_page(COLLECTOR_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
