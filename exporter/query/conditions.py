"""The conditions of a query: what each is called by each way of asking, and what values it takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waybill.facets import FinalState
from waybill.transport.errors import WaybillError

if TYPE_CHECKING:
    import msgspec


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


_FORMS: Final = {
    ConditionKind.PAIRS: "; `key=value`",
    ConditionKind.INSTANT: "; epoch milliseconds",
    ConditionKind.UNTIL: ", or at it; epoch milliseconds",
    ConditionKind.IS_ABSENT: "; with `false`, the others",
}
"""What an HTTP parameter takes, where that is not a name."""


class Condition(NamedTuple):
    """A condition: what it is called by each way of asking, and what it means.

    Attributes:
        field: in Python, the field of `Query`.
        option: the option of `waybill find`, without its dashes.
        parameter: the HTTP parameter.
        kind: what values it takes.
        metavar: what to give, for the help; None where the kind says it.
        help: which records meet it, as a sentence.
        deltafi: DeltaFi's parameters for it; of two, one is for a key and one for its value.
        is_of_open: whether a file that has not ended can meet it.
    """

    field: str
    option: str
    parameter: str
    kind: ConditionKind
    metavar: str | None
    help: str
    deltafi: tuple[str, ...] = ()
    is_of_open: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be given several times, each time with one value."""
        return self.kind in {ConditionKind.TEXTS, ConditionKind.STATES, ConditionKind.PAIRS}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The HTTP parameters for it, with DeltaFi's."""
        return tuple(dict.fromkeys((self.parameter, *self.deltafi)))

    @property
    def parameter_help(self) -> str:
        """Which records meet it, and in which form its HTTP parameter takes values, as a sentence."""
        return f"{self.help.removesuffix('.')}{_FORMS.get(self.kind, '')}."

    def read(self, texts: Sequence[str], read_ms: Callable[[Condition, str], int]) -> object:
        """The value of the field for what an option or a parameter is given, several times if repeatable."""
        match self.kind:
            case ConditionKind.TEXT:
                return texts[0]
            case ConditionKind.TEXTS | ConditionKind.STATES:
                return tuple(texts)
            case ConditionKind.PAIRS:
                return dict(map(self._pair, texts))
            case ConditionKind.INSTANT | ConditionKind.UNTIL:
                return read_ms(self, texts[0])
            case ConditionKind.IS_ABSENT:
                if texts[0] not in {"true", "false"}:
                    raise InvalidQueryError(self.field, texts[0][:40], "is neither true nor false")
                return texts[0] == "false"

    def _pair(self, text: str) -> tuple[str, str]:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise InvalidQueryError(self.field, text[:40], f"is not a pair; give {self.metavar}")
        return key, value

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
    Condition(
        *("did", "did", "did", ConditionKind.TEXT, "UUID"),
        help="The file with this identity.",
        deltafi=("did",),
        is_of_open=True,
    ),
    Condition(
        *("parent_did", "parent", "parent_did", ConditionKind.TEXT, "UUID"),
        help="Files split from this one.",
        deltafi=("parent_did",),
        is_of_open=True,
    ),
    Condition(
        *("data_source", "data-source", "data_source", ConditionKind.TEXT, "NAME"),
        help="Files that came from this source; * and ? match any.",
        deltafi=("data_source",),
        is_of_open=True,
    ),
    Condition(
        *("data_sink", "data-sink", "data_sink", ConditionKind.TEXT, "NAME"),
        help="Files that left through this sink; * and ? match any.",
        deltafi=("data_sink",),
    ),
    Condition(
        *("not_data_sinks", "not-data-sink", "not_data_sink", ConditionKind.TEXTS, "NAME"),
        help="Files that left through another sink, or none.",
    ),
    Condition(
        *("has_data_sink", "no-data-sink", "no_data_sink", ConditionKind.IS_ABSENT, None),
        help="Files that left through no sink.",
    ),
    Condition(
        *("missing_sink", "missing-sink", "missing_sink", ConditionKind.TEXT, "NAME"),
        help="Files that did not get to this sink, nor did any file that came from them. Shows the last "
        "record of each that meets the other conditions.",
        is_of_open=True,
    ),
    Condition(
        *("system_name", "system", "system_name", ConditionKind.TEXT, "NAME"),
        help="Records of this system.",
        deltafi=("system_name",),
        is_of_open=True,
    ),
    Condition(
        *("filename", "filename", "filename", ConditionKind.TEXT, "NAME"),
        help="Files of this name; * and ? match any.",
        deltafi=("filename",),
        is_of_open=True,
    ),
    Condition(
        *("final_state", "state", "final_state", ConditionKind.STATES, None),
        help="Files with this final state, or any of several.",
        deltafi=("final_state",),
    ),
    Condition(
        *("not_final_states", "not-state", "not_final_state", ConditionKind.STATES, None),
        help="Files with another final state.",
    ),
    Condition(
        *("input_dataset", "input", "input", ConditionKind.TEXT, "NAME"),
        help="Files of runs that read this dataset, such as file:/data/lake, or the last part of it.",
        is_of_open=True,
    ),
    Condition(
        *("producer", "producer", "producer", ConditionKind.TEXT, "URI"),
        help="Files whose events have this producer.",
        is_of_open=True,
    ),
    Condition(
        *("annotations", "annotation", "annotation", ConditionKind.PAIRS, "KEY=VALUE"),
        help="Files with this annotation.",
        deltafi=("annotation_key", "annotation_value"),
        is_of_open=True,
    ),
    Condition(
        *("since_ms", "since", "from", ConditionKind.INSTANT, "WHEN"),
        help="Only records that ended at this time or later.",
        deltafi=("from",),
        is_of_open=True,
    ),
    Condition(
        *("until_ms", "until", "to", ConditionKind.UNTIL, "WHEN"),
        help="Only records that ended before this time.",
        deltafi=("to",),
    ),
    Condition(
        *("created_since_ms", "created-since", "created_from", ConditionKind.INSTANT, "WHEN"),
        help="Only files that began at this time or later.",
        is_of_open=True,
    ),
    Condition(
        *("created_until_ms", "created-until", "created_to", ConditionKind.UNTIL, "WHEN"),
        help="Only files that began before this time.",
        is_of_open=True,
    ),
)
"""All conditions that a command and a request can give."""


def read_conditions(
    given: Mapping[str, Sequence[str]], read_ms: Callable[[Condition, str], int]
) -> dict[str, Any]:
    """The fields of `Query` for the conditions that options or parameters give.

    Args:
        given: the texts of each, by its field.
        read_ms: reads an instant in epoch milliseconds.

    Raises:
        InvalidQueryError: one cannot be read.
    """
    for field, texts in given.items():
        for text in texts:
            check_text(field, text)
    return {one.field: one.read(given[one.field], read_ms) for one in CONDITIONS if given.get(one.field)}


def check_text(field: str, text: str) -> None:
    """Raise an `InvalidQueryError` if a text is not in UTF-8, as an argument of a program may be."""
    if text.encode("utf-8", "ignore").decode() != text:
        raise InvalidQueryError(field, text, "is not in UTF-8; give the name as `waybill find` shows it")


def check_texts(asked: msgspec.Struct) -> None:
    """Raise an `InvalidQueryError` if a field of a question is a text that is not in UTF-8."""
    for field in asked.__struct_fields__:
        if isinstance(text := getattr(asked, field), str):
            check_text(field, text)


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
