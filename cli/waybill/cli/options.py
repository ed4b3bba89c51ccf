"""The settings as options: every command that obeys a setting has an option of the same name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import typer

from waybill.transport import Settings

ORIGIN: Final = "the command's options"
"""What messages and `waybill settings` call a value given as an option."""


class _Words(NamedTuple):
    metavar: str
    help: str


_WORDS: Final = {
    "home": _Words("DIR", "The journal and the runner's log; a folder on a local disk."),
    "root": _Words("DIR", "Where the provenance files go. [default: the home]"),
    "system_name": _Words("NAME", "The name in records that carry none. [default: the host's name]"),
    "provenance_enabled": _Words("", "Write the Parquet provenance layout."),
    "provenance_age_off_days": _Words("DAYS", "How long the layout keeps records."),
    "provenance_annotations_allowed": _Words(
        "KEYS", "Annotation keys that reach the records, with commas between them."
    ),
    "archive_enabled": _Words("", "Keep every event as Parquet, for rebuilds. [default: on]"),
    "marquez_url": _Words("URL", "The backend; without one, events wait in the journal."),
    "marquez_api_key": _Words("KEY", "Sent to the backend as a bearer token; better set in the environment."),
    "marquez_detail": _Words(
        "WHAT", "'every' event; files as a 'summary' of each minute; 'auto': that while it is behind."
    ),
    "detail_backlog": _Words("COUNT", "How many events have to wait for 'auto' to make summaries."),
    "public_url": _Words("URL", "Where users reach the collector, for links to it."),
    "backends": _Words(
        "JSON", "Further backends, a list as docs/marquez.md has it; better set in waybill.yaml."
    ),
    "redact": _Words(
        "RULES", "Parts of facets that are not kept, as docs/collector.md has it, with commas between."
    ),
    "journal_retain_days": _Words("DAYS", "How long the journal keeps what every projection has."),
    "journal_max_bytes": _Words("SIZE", "The journal's largest size, as 10GiB."),
    "journal_when_full": _Words("WHAT", "'refuse' new entries, or 'drop-delivered' ones."),
    "runner": _Words("WHO", "'child': started when needed; 'none': something else does the work."),
    "durability": _Words("HOW", "'power': fsynced before it is acknowledged; 'process': within 100 ms."),
    "listen": _Words("HOST:PORT", "The address of the HTTP endpoint."),
}

_SWITCHES: Final = frozenset({"provenance_enabled", "archive_enabled"})

EVERY: Final = tuple(_WORDS)
"""Every setting, for commands that show or check them all."""

RUNNING: Final = tuple(name for name in _WORDS if name != "listen")
"""Every setting that a runner works by, for commands that may become or start one."""


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each named setting, and the loaded settings as its first argument.

    Args:
        names: settings that the command obeys, in the order of its help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def loaded(**given: Any) -> None:  # noqa: ANN401 - each is checked by its own option, or by `Settings.load`
            overrides = {name: given.pop(name) for name in names}
            command(Settings.load(overrides, origin=ORIGIN), **given)

        first, *own = inspect.signature(command, eval_str=True).parameters.values()
        options = [_option(name) for name in names]
        loaded.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]  # which typer reads
        loaded.__annotations__.pop(first.name, None)
        return loaded

    return decorate


def _option(name: str) -> inspect.Parameter:
    words = _WORDS[name]
    flag = f"--{name.replace('_', '-')}"
    # A switch has to say both of its words, so that "off" can override "on" from further away.
    switch = name in _SWITCHES
    info = typer.Option(
        f"{flag}/--no-{flag.removeprefix('--')}" if switch else flag,
        metavar=words.metavar or None,
        help=words.help,
        show_default=False,
    )
    annotation = Annotated[bool | None, info] if switch else Annotated[str | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
