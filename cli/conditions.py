"""The conditions of a query as options: a command has an option for each of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from waybill.exporter.query import CONDITIONS, Condition, ConditionKind, InvalidQueryError, read_conditions
from waybill.facets import FinalState
from waybill.transport.process import leave_numpy_out

from . import completing
from .arguments import FORMS, check_span, moment, word
from .records import zone_of

if TYPE_CHECKING:
    from waybill.exporter import Query

_QUERY: Final = "query"
_COMPLETED: Final = {"system_name": completing.systems}
_SPANS: Final = (("since_ms", "until_ms"), ("created_since_ms", "created_until_ms"))
_TYPES: Final[dict[ConditionKind, Any]] = {
    ConditionKind.TEXTS: list[str] | None,
    ConditionKind.STATES: list[FinalState] | None,
    ConditionKind.PAIRS: list[str] | None,
    ConditionKind.IS_ABSENT: bool,
}


def with_conditions(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each condition, and as third argument, `query`, the query of these.

    Its options before them are the first two arguments. Times without a zone are in that of its option `tz`.
    A value of the query that cannot be is an error of its option.
    """

    @functools.wraps(command)
    def asked(*first: object, **given: Any) -> None:  # noqa: ANN401 - each is checked by its own option
        leave_numpy_out()
        conditions = {condition.field: given.pop(condition.field) for condition in CONDITIONS}
        try:
            command(*first, _query_of(conditions, zone_of(given["tz"])), **given)
        except InvalidQueryError as error:
            option = FLAGS.get(error.field, f"--{error.field}")
            raise typer.BadParameter(f"{error.value!r} {error.what}", param_hint=option) from None

    signature = inspect.signature(command, eval_str=True, locals={"Query": object})
    own = [one for name, one in signature.parameters.items() if name != _QUERY]
    places = [one for one in own if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    options = [*places, *map(_option, CONDITIONS), *own[len(places) :]]
    asked.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # which typer reads
    asked.__annotations__.pop(_QUERY)
    return asked


def _option(condition: Condition) -> inspect.Parameter:
    help_text = condition.help
    if condition.field == "since_ms":
        help_text = f"{help_text.removesuffix('.')}: {FORMS}."
    if condition.is_repeatable:
        help_text += " Repeatable."
    if condition.kind is ConditionKind.STATES:
        info = word(_flag(condition), of=FinalState, help=help_text)
    else:
        completed = _COMPLETED.get(condition.field)
        info = typer.Option(
            _flag(condition), metavar=condition.metavar, help=help_text, autocompletion=completed
        )
    kind = _TYPES.get(condition.kind, str | None)
    default = False if kind is bool else None
    return inspect.Parameter(
        condition.field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _query_of(given: Mapping[str, Any], zone: tzinfo | None) -> Query:
    from waybill.exporter import Query

    texts = {field: _texts_of(value) for field, value in given.items() if value not in (None, False, [])}
    values = read_conditions(texts, lambda condition, text: moment(text, zone, _flag(condition)))
    for since, until in _SPANS:
        check_span(values.get(since), values.get(until), FLAGS[since], FLAGS[until])
    _refuse_contradictions(values)
    return Query(**values)


def _texts_of(value: bool | str | Sequence[str]) -> Sequence[str]:
    if isinstance(value, bool):
        return ["true"]
    return [value] if isinstance(value, str) else value


def _refuse_contradictions(values: Mapping[str, Any]) -> None:
    """Refuse conditions that no record can meet together."""
    sink = values.get("data_sink")
    if sink is not None and "has_data_sink" in values:
        raise typer.BadParameter(
            f"leave out {FLAGS['data_sink']}, or leave out this", param_hint=FLAGS["has_data_sink"]
        )
    for field, other in (("data_sink", "not_data_sinks"), ("final_state", "not_final_states")):
        wanted = values.get(field, ())
        both = {wanted} if isinstance(wanted, str) else set(wanted)
        if both := both.intersection(values.get(other, ())):
            says = f"{FLAGS[field]} asks for {min(both)!s}; leave out one of them"
            raise typer.BadParameter(says, param_hint=FLAGS[other])


def _flag(condition: Condition) -> str:
    return f"--{condition.option}"


FLAGS: Final = {condition.field: _flag(condition) for condition in CONDITIONS}
"""The option of each condition, by its field in `Query`."""
