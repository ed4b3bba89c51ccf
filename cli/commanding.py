"""The classes of commands, of groups, and of commands that load on first use."""

from __future__ import annotations

import functools
import re
import shlex
import signal
import textwrap
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from .starting import end_at_once

SETTINGS_PANEL: Final = "Settings"
"""The section of a command's help that lists its settings."""

_F = TypeVar("_F", bound=Callable[..., Any])

_FILENAME: Final = "--filename"

_SETTINGS_SHOWN: Final = 6
"""A command with more settings lists only their names; `waybill settings --help` explains them all."""

_WORDINGS: Final = (
    (re.compile(r"Value error, (.*) is not one of (.*)\."), r"\1 is not one of \2"),
    (re.compile(r"Input should be greater than or equal to (.*)"), r"give \1 or more"),
    (re.compile(r"Input should be less than or equal to (.*)"), r"give \1 or less"),
    (re.compile(r"Input should be a valid integer.*"), "give a whole number"),
    (re.compile(r"Input should be a valid number.*"), "give a number"),
)
"""Messages of the library that checks values, and plain words for them that say what to give."""


_EXAMPLES: Final = re.compile(r"^Examples:\n(?=  )", re.MULTILINE)
_KEEPING_LINES: Final = "Examples:\n\n\b\n"


class _Ours:
    """What a group and a command have in common: the lines of their examples stay as they are written.

    Values that are as wanted are taken as they are: the library that checks the others takes long to load.
    """

    help: str | None

    def __init__(self, *given: Any, **more: Any) -> None:  # noqa: ANN401 - typer's version says which
        super().__init__(*given, **more)
        self.help = _EXAMPLES.sub(_KEEPING_LINES, self.help or "")

    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's version says whose
        """The parameters."""
        params = super().get_params(ctx)  # type: ignore[misc]  # the other base's
        for param in params:
            if "process_value" not in vars(param):
                param.process_value = functools.partial(_take, param, param.process_value)
        return params


def _take(param: Any, check: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:  # noqa: ANN401 - as above
    wanted = getattr(param, "type_descriptor", None)
    is_text = wanted is not None and wanted.annotation is str and wanted.parameter_info.parser is None
    if param.required or not (value is None or (is_text and isinstance(value, str))):
        return check(ctx, value)
    taken = () if value is None and (param.multiple or param.nargs != 1) else value
    return taken if param.callback is None else param.callback(ctx, param, taken)


class CommandGroup(_Ours, TyperGroup):
    """A group of commands as typer runs it."""


class Command(_Ours, TyperCommand):
    """A command of Waybill: its help lists settings separately, and errors about values use plain words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's version says whose
        """Read the command line."""
        is_open, ctx.allow_extra_args = ctx.allow_extra_args, True
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = in_plain_words(error.message)
            raise
        if ctx.args and not (is_open or ctx.resilient_parsing):
            ctx.fail(_unexpected(ctx.args, {name for param in self.params for name in param.opts}))
        if ctx.params.get("as_json") and ctx.params.get("as_csv"):
            raise typer.BadParameter("give --json or --csv, not both", ctx=ctx)
        return rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run the command; Ctrl-C at a question ends it as Ctrl-C does anywhere else."""
        if signal.getsignal(signal.SIGINT) is end_at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except typer.Abort as error:
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
            typer.echo(err=True)  # the question's line is still open
            raise KeyboardInterrupt from None

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the arguments and options, and the settings in a section of their own."""
        parts: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], SETTINGS_PANEL: []}
        for param in self.get_params(ctx):
            if (shown := param.get_help_record(ctx)) is not None:
                is_argument = param.param_type_name == "argument"
                title = "Arguments" if is_argument else getattr(param, "rich_help_panel", None) or "Options"
                parts[title].append(shown)
        for title, rows in parts.items():
            if not rows:
                continue
            with formatter.section(title):
                if title == SETTINGS_PANEL and len(rows) > _SETTINGS_SHOWN:
                    _write_names([name for name, _ in rows], formatter)
                else:
                    formatter.write_dl(rows)


def _unexpected(words: Sequence[str], options: Collection[str]) -> str:
    """The error about words that belong to no option; it suggests the option that may be meant."""
    says = f"unexpected: {shlex.join(words)}"
    if _FILENAME not in options:
        return says
    from .arguments import is_did

    [word, *_] = words
    option, found = ("--did", "the file with this did") if is_did(word) else (_FILENAME, "files of this name")
    return f"{says}; to find {found}, give {option} {shlex.quote(word)}"


def _write_names(names: Sequence[str], formatter: Any) -> None:  # noqa: ANN401 - as above
    indent = " " * formatter.current_indent
    text = f"{', '.join(names)}; `waybill settings --help` explains them"
    lines = textwrap.wrap(
        text,
        formatter.width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    formatter.write("\n".join([*lines, ""]))


def in_plain_words(message: str) -> str:
    """An error about a value, as a person would say it."""
    for pattern, plain in _WORDINGS:
        message = pattern.sub(plain, message)
    return message


class Group(typer.Typer):
    """A group of commands; a module adds to it with the decorator `command`."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - those of `Typer`
        made = {
            "cls": CommandGroup,
            "no_args_is_help": True,
            "add_completion": False,
            "rich_markup_mode": None,
        }
        super().__init__(**{**made, "pretty_exceptions_enable": False, **given})

    def command(self, name: str | None = None, **given: Any) -> Callable[[_F], _F]:  # noqa: ANN401 - those of `Typer`
        """Add a function as a command."""
        return super().command(name, **{"cls": Command, **given})


class Deferred(TyperCommand):
    """A command whose module is loaded on first use; the list of all commands needs only its help.

    Args:
        module: the module's name; it has a function of the command's name, or the group `app`.
    """

    def __init__(self, name: str, *, help: str, module: str) -> None:  # noqa: A002 - as its base calls it
        super().__init__(name, help=help, rich_markup_mode=None)
        self._module = module

    def make_context(self, *given: Any, **extra: Any) -> Any:  # noqa: ANN401 - typer's version says whose context
        """Have the loaded command read its command line; the context then belongs to that command."""
        return self.loaded.make_context(*given, **extra)

    @functools.cached_property
    def loaded(self) -> TyperCommand | TyperGroup:
        """The command itself."""
        module, name = import_module(self._module), str(self.name)
        group: Group | None = getattr(module, "app", None)
        if group is None:
            group = Group()
            group.command(name)(getattr(module, name.replace("-", "_")))
        made: Any = typer.main.get_command(group)
        made.name = name
        return made  # type: ignore[no-any-return]
