"""The commands over what was set aside: `list`, `show`, `retry` and `drop`, the same for each kind of it.

A module of `cli.commands` declares a kind, and `commands_of` makes its group of commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

import typer

from waybill.transport import Journal, NotFoundError, Settings

from . import console
from .arguments import All, Csv, JsonLines, JsonObject, Timeout, argument, flag
from .commanding import Group
from .home import existing_journal, flush_with_progress
from .options import RUNNING, with_settings
from .records import as_plain, instant_of, iso


class _Item(Protocol):
    @property
    def set_aside_ms(self) -> int: ...
    @property
    def reason(self) -> str: ...


_T = TypeVar("_T", bound=_Item)

Left = list[tuple[_T, str]]
"""The items that stay although they were tried again, and the reason of each."""


class Kind(ABC, Generic[_T]):
    """What one group of commands is about; the docstrings of `show`, `retry` and `drop` are their help.

    Attributes:
        command: the name of the group.
        what: what its items are, for its help.
        nouns: the word for one item, and for several.
        key: the fields that identify an item: its ID, and, where several may set the same entry aside, who
            did. The latter is also an option of each command.
        complete: the completion of that option.
        columns: the heading and the text of each further column of the list.
        examples: the arguments of `show`, `retry` and `drop`, for their help.
        retry_option: the name and the annotation of an option of `retry`, whose value it gets.
        retry_settings: the settings that `retry` takes.
    """

    command: ClassVar[str]
    what: ClassVar[str]
    nouns: ClassVar[tuple[str, str]]
    key: ClassVar[tuple[str, ...]]
    complete: ClassVar[Callable[[typer.Context, str], list[str]] | None] = None
    columns: ClassVar[tuple[tuple[str, Callable[[Any], object]], ...]]
    examples: ClassVar[tuple[str, str, str]] = ("4711 > entry.json", "4711 4712", "4711")
    retry_option: ClassVar[tuple[str, Any]] = ("timeout_s", Timeout)
    retry_settings: ClassVar[tuple[str, ...]] = RUNNING

    def __init__(self, settings: Settings, chosen: str | None) -> None:
        self.settings = settings
        self.chosen = chosen

    @abstractmethod
    def read(self, journal: Journal | None) -> list[_T]:
        """The items, oldest first; only those that `chosen` has set aside, unless it is None."""

    @abstractmethod
    def show(self, journal: Journal, item: _T) -> bytes | None:
        """The content of an item; None if it is gone."""

    @abstractmethod
    def retry(self, journal: Journal, items: list[_T], option: Any, /) -> Left[_T]:  # noqa: ANN401 - each kind has its own
        """Try items again."""

    @abstractmethod
    def drop(self, journal: Journal, items: list[_T]) -> None:
        """Forget items."""

    def key_of(self, item: _T) -> dict[str, Any]:
        """What identifies an item, for programs."""
        return {name: getattr(item, name) for name in self.key}

    def name_of(self, item: _T) -> str:
        """What identifies an item, for people: "4711 of layout"."""
        return " of ".join(map(str, self.key_of(item).values()))

    def by_owner(self, items: list[_T]) -> Iterable[tuple[str, list[int]]]:
        """The IDs of items, by who has set them aside."""
        ids: dict[str, list[int]] = {}
        for item in items:
            item_id, owner = self.key_of(item).values()
            ids.setdefault(owner, []).append(item_id)
        return ids.items()

    def choose(self, journal: Journal | None, ids: list[str] | None, *, everything: bool) -> list[_T]:
        """The items that the user named, or all of them if the user said so explicitly.

        Raises:
            typer.BadParameter: the user named some and chose all, or did neither.
            NotFoundError: an item that the user named does not exist.
        """
        listed_by = f"`waybill {self.command} list`"
        if everything == bool(ids):
            raise typer.BadParameter(f"give the ones to use, as listed by {listed_by}, or --all")
        items = [(str(getattr(item, self.key[0])), item) for item in self.read(journal)]
        wanted = {item_id for item_id, _ in items} if everything else set(ids or ())
        if unknown := sorted(wanted.difference(item_id for item_id, _ in items)):
            raise NotFoundError(f"{', '.join(unknown)}: no such {self.nouns[0]}; {listed_by} shows them")
        return [item for item_id, item in items if item_id in wanted]

    def left_after_flush(self, journal: Journal, items: list[_T], timeout_s: float | None) -> Left[_T]:
        """Flush the home, which tries these items again; return those that stay."""
        problems = flush_with_progress(self.settings, timeout_s).problems
        before = {self.name_of(item): item for item in items}
        left = []
        for item in self.read(journal):
            if (was := before.get(self.name_of(item))) is not None:
                not_yet = f"not tried yet; {problems.get(getattr(item, self.key[1]), 'flush again')}"
                is_same = item.set_aside_ms == was.set_aside_ms
                left.append((item, not_yet if is_same else f"failed again: {item.reason}"))
        return left


_Id = Annotated[str, argument("ID", "As `list` shows it.")]
_Ids = Annotated[list[str] | None, argument("ID", "As `list` shows them.")]
_DryRun = Annotated[bool, flag("--dry-run", "Only list them.")]


def commands_of(kind: type[Kind[Any]]) -> Group:
    """The group of commands about one kind."""
    group = Group(help=f"List, show, retry or drop {kind.what}.")
    show, retry, drop = kind.examples
    listed = f"List {kind.nouns[1]}, oldest first, each with the reason."
    for name, function, settings, text, examples in (
        ("list", _list, ("home",), listed, ("", "--json | jq .reason")),
        ("show", _show, ("home",), kind.show.__doc__, (show,)),
        ("retry", _retry, kind.retry_settings, kind.retry.__doc__, (retry, "--all --dry-run")),
        ("drop", _drop, ("home",), kind.drop.__doc__, (drop, "--all --yes")),
    ):
        lines = [f"  waybill {kind.command} {name} {example}".rstrip() for example in examples]
        help_text = "\n".join([cleandoc(text or ""), "\nExamples:", *lines])
        group.command(name, help=help_text)(with_settings(*settings)(_about(kind, function)))
    return group


def _about(kind: type[Kind[Any]], function: Callable[..., None]) -> Callable[..., None]:
    """A command that runs a function with a kind, the home's journal and the values of its own options."""

    def command(settings: Settings, **given: Any) -> None:  # noqa: ANN401 - each is checked by its own option
        chosen = [given.pop(name) for name in kind.key[1:]]
        with existing_journal(settings, to_read=function in {_list, _show}) as journal:
            function(kind(settings, *chosen or [None]), journal, **given)

    _, _, *own = signature(function, eval_str=True).parameters.values()
    options = [kind.retry_option] if own[-1].kind is Parameter.VAR_KEYWORD else []
    own = own[: len(own) - len(options)]
    for name in kind.key[1:]:
        says = f"Only those of this {name}, by its name in `waybill status`."
        option = typer.Option(f"--{name}", metavar="NAME", autocompletion=kind.complete, help=says)
        options.append((name, Annotated[str | None, option]))
    own += [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=of) for name, of in options]
    settings = Parameter("settings", Parameter.POSITIONAL_OR_KEYWORD, annotation=Settings)
    command.__signature__ = Signature([settings, *own])  # type: ignore[attr-defined]  # which `with_settings` reads
    return command


def _list(
    kind: Kind[Any], journal: Journal | None, *, as_json: JsonLines = False, as_csv: Csv = False
) -> None:
    items = kind.read(journal)
    if as_json:
        for item in items:
            console.json(as_plain(item))
    elif items or as_csv:
        _show_table(kind, items, as_csv=as_csv)
    if not items:
        console.note(f"there are no {kind.nouns[1]}")


def _show_table(kind: Kind[Any], items: list[Any], *, as_csv: bool = False) -> None:
    written = iso if as_csv else lambda at_ms: instant_of(at_ms)[:19]
    rows = [
        [
            *kind.key_of(item).values(),
            written(item.set_aside_ms),
            *(text_of(item) for _, text_of in kind.columns),
            item.reason,
        ]
        for item in items
    ]
    columns = (*kind.key, "set aside (UTC)", *(heading for heading, _ in kind.columns), "reason")
    console.table(columns, [list(map(str, row)) for row in rows], as_csv=as_csv)


def _show(kind: Kind[Any], journal: Journal | None, item_id: _Id, *, as_json: JsonObject = False) -> None:
    items = kind.choose(journal, [item_id], everything=False)
    body = (kind.show(journal, items[0]) if journal else None) or b""
    if as_json:
        console.json(as_plain(items[0]) | {"body": body.decode(errors="replace")})
        return
    for item in items:
        console.note(f"{kind.name_of(item)}: {item.reason}")
    console.body(body)


def _retry(
    kind: Kind[Any],
    journal: Journal | None,
    ids: _Ids = None,
    *,
    everything: All = False,
    dry_run: _DryRun = False,
    as_json: JsonObject = False,
    **option: Any,  # noqa: ANN401 - that of the kind
) -> None:
    items = kind.choose(journal, ids, everything=everything)
    if dry_run:
        _show_plan(kind, items, "retried", as_json=as_json)
        return
    left = kind.retry(journal, items, *option.values()) if journal and items else []
    names_left = {kind.name_of(item) for item, _ in left}
    succeeded = [kind.key_of(item) for item in items if kind.name_of(item) not in names_left]
    whys = [kind.key_of(item) | {"why": why} for item, why in left]
    done = f"{len(succeeded)} of {len(items)} succeeded"
    console.result({"succeeded": succeeded, "left": whys}, [done], as_json=as_json)
    console.fail_for(f"{kind.name_of(item)}: {why}" for item, why in left)


def _drop(
    kind: Kind[Any],
    journal: Journal | None,
    ids: _Ids = None,
    *,
    everything: All = False,
    dry_run: _DryRun = False,
    yes: Annotated[bool, flag("--yes", "Do not ask for confirmation.")] = False,
    as_json: JsonObject = False,
) -> None:
    items = kind.choose(journal, ids, everything=everything)
    if dry_run:
        _show_plan(kind, items, "dropped", as_json=as_json)
        return
    if journal and items:
        if not yes:
            typer.confirm(f"Drop {console.counted(len(items), *kind.nouns)} for good?", abort=True, err=True)
        kind.drop(journal, items)
    dropped = {"dropped": [kind.key_of(item) for item in items]}
    console.result(dropped, [f"{len(items)} dropped"], as_json=as_json)


def _show_plan(kind: Kind[Any], items: list[Any], done: str, *, as_json: bool) -> None:
    if as_json:
        console.json({f"would_be_{done}": [kind.key_of(item) for item in items]})
        return
    if items:
        _show_table(kind, items)
    console.note(f"{len(items)} would be {done}")
