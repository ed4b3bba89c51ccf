"""The settings as options: every command that obeys a setting has an option of the same name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from waybill.transport import Settings
from waybill.transport.config import SETTINGS

ORIGIN: Final = "the command's options"
"""What messages and `waybill settings` call a value given as an option."""

EVERY: Final = tuple(SETTINGS)
"""Every setting, for commands that show or check them all."""

_OF_INTAKE: Final = {
    "listen",
    "event_logs",
    "event_logs_every_s",
    "log_format",
    "admit_name_chars",
    "admit_items",
    "admit_made_chars",
}
RUNNING: Final = tuple(name for name in SETTINGS if name not in _OF_INTAKE)
"""Every setting that a runner works by, for commands that may become or start one."""


AGREED: Final = tuple(name for name, setting in SETTINGS.items() if setting.of_home and not setting.secret)
"""Every setting that a home keeps."""


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each named setting, in this order, and the settings as first argument."""

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
    setting = SETTINGS[name]
    flag = f"--{name.replace('_', '-')}"
    # A switch has both words, so that "off" can override "on" from further away.
    is_switch = not setting.metavar
    info = typer.Option(
        f"{flag}/--no-{flag.removeprefix('--')}" if is_switch else flag,
        metavar=setting.metavar or None,
        help=f"{setting.help} [default: {setting.default}]" if setting.default else setting.help,
        show_default=False,
    )
    annotation = Annotated[bool | None, info] if is_switch else Annotated[str | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
