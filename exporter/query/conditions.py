"""The conditions of a query: what each is called in Python and over HTTP, and what values it takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from waybill.facets import FinalState
from waybill.transport.errors import WaybillError


class InvalidQueryError(WaybillError):
    """A query has a value that cannot be.

    Args:
        field: the field of `Query`.
        value: its value.
        what: the problem, as the end of a sentence.
    """

    def __init__(self, field: str, value: str, what: str) -> None:
        super().__init__(field, value, what)
        self.field = field
        self.value = value
        self.what = what

    def __str__(self) -> str:
        return f"{self.field} {self.value!r} {self.what}"


class ConditionKind(Enum):
    """What values a condition takes."""

    TEXT = auto()
    TEXTS = auto()
    STATES = auto()
    PAIRS = auto()
    INSTANT = auto()
    """In epoch milliseconds."""
    UNTIL = auto()
    """The first instant that does not count; over HTTP, as in DeltaFi, the last that does."""
    IS_ABSENT = auto()
    """Over HTTP whether there is none, in `Query` whether there is one."""


class Condition(NamedTuple):
    """A condition: the field of `Query`, the HTTP parameter, and what values it takes."""

    field: str
    parameter: str
    kind: ConditionKind = ConditionKind.TEXT

    @property
    def is_repeatable(self) -> bool:
        """Whether the parameter may be given several times, each time with one value."""
        return self.kind in {ConditionKind.TEXTS, ConditionKind.STATES, ConditionKind.PAIRS}

    def tell(self, value: object) -> list[str]:
        """The values of the HTTP parameter for a value of the field."""
        match value:
            case bool():
                return [str(not value).lower()]
            case int():
                return [str(value - 1 if self.kind is ConditionKind.UNTIL else value)]
            case str():
                return [str(value)]
            case Mapping():
                return [f"{key}={text}" for key, text in value.items()]
            case Collection():
                return list(map(str, value))
            case _:
                return []


CONDITIONS: Final = (
    Condition("did", "did"),
    Condition("parent_did", "parent_did"),
    Condition("data_source", "data_source"),
    Condition("data_sink", "data_sink"),
    Condition("filename", "filename"),
    Condition("system_name", "system_name"),
    Condition("final_state", "final_state", ConditionKind.STATES),
    Condition("since_ms", "from", ConditionKind.INSTANT),
    Condition("until_ms", "to", ConditionKind.UNTIL),
    Condition("not_final_states", "not_final_state", ConditionKind.STATES),
    Condition("missing_sink", "missing_sink"),
    Condition("has_data_sink", "no_data_sink", ConditionKind.IS_ABSENT),
    Condition("input_dataset", "input"),
    Condition("producer", "producer"),
    Condition("not_data_sinks", "not_data_sink", ConditionKind.TEXTS),
    Condition("annotations", "annotation", ConditionKind.PAIRS),
    Condition("created_since_ms", "created_from", ConditionKind.INSTANT),
    Condition("created_until_ms", "created_to", ConditionKind.UNTIL),
)
"""All conditions that can be given over HTTP."""


def check_states(field: str, states: str | Collection[str]) -> tuple[FinalState, ...]:
    """The states that a field of a query is given, in capitals or small letters.

    Raises:
        InvalidQueryError: one is no state.
    """
    several = (states,) if isinstance(states, str) else states
    for state in several:
        if state.upper() not in FinalState.__members__:
            raise InvalidQueryError(field, state[:40], f"is not one of {', '.join(FinalState)}")
    return tuple(FinalState(state.upper()) for state in several)
