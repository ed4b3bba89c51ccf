"""Redaction: removes or masks parts of facets before they reach the journal or anything made from it.

A rule is a path. A plain path, such as ``run.facets.errorMessage.stackTrace``, drops the value. A path with
``=mask``, such as ``job.facets.sql.query=mask``, replaces each string in the value by `MASK` and each number
by null; ``=mask-keys`` also replaces the keys of its objects. A ``*`` matches any characters of a key.
Matching ignores case and looks inside lists. A key that contains dots is written as it is.

What a rule masks is also masked where another facet of the event repeats it, such as the arguments of a
program in its source code and in its error. Facets whose texts are names, times or ids stay as they are.

An event that was changed for Marquez's page has its parent in another facet, and the parent's job in the name
of its own. If a rule removes anything of the parent, the event is kept as it was before that change.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from waybill.facets import PRESENTED_FACET

from ..errors import AdmissionError
from .admission import admit_event, depth_error
from .bounds import DEFAULT_BOUNDS, Bounds
from .repeated_keys import FACETS, has_as_many_strings

MASK: Final = "[redacted]"

_REPEATED_CHARS_MIN: Final = 4
"""A shorter text may be part of anything."""
_OPTION: Final = re.compile(r"\A-{0,2}[\w.-]+=(.+)", re.DOTALL)
_NAMES_AND_TIMES: Final = frozenset(
    {
        *("parent", "jobDependencies", "nominalTime", "schema", "columnLineage", "lineage", "symlinks"),
        *("version", "subset", "jobType", "waybill_deltaFile", "waybill_fingerprint", PRESENTED_FACET),
    }
)

_MASKS: Final = "=mask"
_MASKS_KEYS: Final = "=mask-keys"
_ROOTS: Final = (
    "run.facets.",
    "job.facets.",
    "dataset.facets.",
    "inputs.facets.",
    "inputs.inputFacets.",
    "outputs.facets.",
    "outputs.outputFacets.",
)
_FORM: Final = re.compile(r"[^\s,=]+(?:=mask(?:-keys)?)?")
_FULL: Final = b"""{
  "eventTime": "2026-01-31T12:00:00Z", "eventType": "FAIL", "producer": "a:",
  "run": {"runId": "a", "facets": {
    "parent": {"run": {"runId": "a"}, "job": {"namespace": "a", "name": "a"}},
    "errorMessage": {"message": "a", "programmingLanguage": "a", "stackTrace": "a"},
    "tags": {"tags": [{"key": "a", "value": "a", "source": "a"}]},
    "waybill_presented": {
      "jobName": "a", "parent": {"run": {"runId": "a"}, "job": {"namespace": "a", "name": "a"}}
    },
    "waybill_deltaFile": {
      "did": "a", "parentDid": "a", "systemName": "a", "dataSource": "a", "filename": "a", "dataSink": "a",
      "transforms": ["a"], "finalState": "COMPLETE", "annotations": {"a": "a"},
      "created": "2026-01-31T12:00:00Z", "completed": "2026-01-31T12:00:00Z"
    }
  }},
  "job": {"namespace": "a", "name": "a"}
}"""
"""An event with every facet that is read."""

_NEEDED: Final = (
    "parent.run.runId",
    "parent.job.namespace",
    "parent.job.name",
    "errorMessage.message",
    "tags.tags.key",
    "tags.tags.value",
    "waybill_presented.jobName",
    "waybill_presented.parent.run.runId",
    "waybill_presented.parent.job.namespace",
    "waybill_presented.parent.job.name",
)
"""The texts without which a facet is not read, so that a rule has to name the facet as a whole."""


class Redaction:
    """Admits events as `admit_event` does, and redacts them by rules that `parse_rules` has checked."""

    def __init__(self, rules: Iterable[str] = (), bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.bounds: Final = bounds
        self._rules: Final = [_Rule(rule) for rule in rules]

    def admit(self, body: bytes) -> bytes:
        """The bytes of an event to keep: the given bytes, unless a rule applies."""
        admit_event(body, self.bounds)
        try:
            return self.redact(body)
        except RecursionError:
            raise depth_error() from None
        except msgspec.DecodeError as error:
            what = f"the part to redact is not readable ({error})"
            raise AdmissionError("$", what, "give numbers that fit 64 bits") from None

    def refused(self, body: bytes) -> bytes:
        """What may be kept of a refused body: nothing if it is not valid JSON and a rule might apply."""
        try:
            return self.redact(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return b""

    def redact(self, body: bytes) -> bytes:
        """The bytes to keep of an event that was admitted earlier.

        Raises:
            msgspec.DecodeError: the part to redact is not readable.
            RecursionError: it is nested too deeply.
        """
        rules = self._rules
        # An escape can hide a name, and the case of non-ASCII letters cannot be folded in bytes.
        if rules and body.isascii() and b"\\" not in body:
            lower = body.lower()
            rules = [rule for rule in rules if rule.may_concern(lower)]
        if not rules:
            return body
        value = msgspec.json.decode(body)
        # A facet that is there twice is decoded once: the bytes also hold the other one, which no rule sees.
        has_repeats = not has_as_many_strings(msgspec.json.encode(value), body)
        masked: set[str] = set()
        found = [rule.apply(value, masked) for rule in rules]
        if _take_back(value):
            found += [rule.apply(value, masked) for rule in rules]
        if repeated := _pattern_of(masked):
            _mask_repeats(value, repeated)
        return msgspec.json.encode(value) if any(found) or has_repeats else body


class _Rule:
    def __init__(self, text: str) -> None:
        path, *how = text.split("=")
        parts = path.split(".")
        self._masks = bool(how)
        self._masks_keys = text.endswith(_MASKS_KEYS)
        self._words = [word.lower().encode() for word in re.split(r"[.*]+", path) if word]
        self._length = len(parts)
        self._keys = {
            (begin, end): re.compile(
                ".*".join(map(re.escape, ".".join(parts[begin:end]).split("*"))), re.DOTALL | re.IGNORECASE
            )
            for begin in range(len(parts))
            for end in range(begin + 1, len(parts) + 1)
        }

    def may_concern(self, lower: bytes) -> bool:
        """Whether a lower-case JSON text without escapes can contain the path at all."""
        return all(word in lower for word in self._words)

    def apply(self, value: Any, masked: set[str], at: int = 0) -> bool:  # noqa: ANN401 - any JSON value
        """Redact a value at the path's first `at` parts, in place; returns whether anything matched.

        The texts that it masks are added to `masked`.
        """
        found = False
        if isinstance(value, list):
            for one in value:
                found |= self.apply(one, masked, at)
        elif isinstance(value, dict):
            for key in list(value):
                for end in range(at + 1, self._length + 1):
                    if key in value and self._keys[at, end].fullmatch(key):
                        found |= self._apply_to(value, key, masked, end)
        return found

    def _apply_to(self, value: dict[str, Any], key: str, masked: set[str], end: int) -> bool:
        if end < self._length:
            return self.apply(value[key], masked, end)
        if self._masks:
            masked.update(_texts_in(value[key]))
            value[key] = _masked(value[key], keys_too=self._masks_keys)
        else:
            del value[key]
        return True


def _take_back(event: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Give an event, in place, the parent and job name that it had before Marquez; whether it lacked them."""
    match event:
        case {"run": {"facets": dict(facets)}, "job": dict(job)}:
            match facets.get(PRESENTED_FACET):
                case {"jobName": str(name), "parent": parent}:
                    del facets[PRESENTED_FACET]
                    facets["parent"], job["name"] = parent, name
                    return True
    return False


def _texts_in(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """The texts that a value has, and what is given to an option in them; not what every facet has."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not key.startswith("_") and key != "key":
                yield from _texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)
    elif isinstance(value, str):
        yield value
        yield from _OPTION.findall(value)


def _pattern_of(masked: Iterable[str]) -> re.Pattern[str] | None:
    """Finds texts as whole words, also quoted for a shell or encoded in a URL; None: there are none."""
    texts = {text for text in masked if len(text) >= _REPEATED_CHARS_MIN}
    forms = sorted(
        {form for one in texts for form in (one, shlex.quote(one).strip("'"), quote(one))}, key=len
    )
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, reversed(forms)))})(?!\w)") if forms else None


def _mask_repeats(event: Any, repeated: re.Pattern[str]) -> None:  # noqa: ANN401 - any JSON value
    """Mask texts wherever the facets of an event repeat them, in place."""
    if isinstance(event, list):
        for one in event:
            _mask_repeats(one, repeated)
    elif isinstance(event, dict):
        for key, value in event.items():
            if key in FACETS and isinstance(value, dict):
                for name in value.keys() - _NAMES_AND_TIMES:
                    value[name] = _without(value[name], repeated)
            else:
                _mask_repeats(value, repeated)


def _without(value: Any, repeated: re.Pattern[str]) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {key: one if key.startswith("_") else _without(one, repeated) for key, one in value.items()}
    if isinstance(value, list):
        return [_without(one, repeated) for one in value]
    return repeated.sub(MASK, value) if isinstance(value, str) else value


def _masked(value: Any, *, keys_too: bool) -> Any:  # noqa: ANN401 - any JSON value goes in and comes out
    if isinstance(value, dict):
        # The number keeps the keys distinct.
        return {
            f"{MASK} {number}" if keys_too else key: _masked(inner, keys_too=keys_too)
            for number, (key, inner) in enumerate(value.items(), 1)
        }
    if isinstance(value, list):
        return [_masked(inner, keys_too=keys_too) for inner in value]
    return MASK if isinstance(value, str) else None


def parse_rules(value: object) -> tuple[str, ...]:
    """Check rules, given as a list or as a comma-separated string.

    Raises:
        ValueError: a rule is invalid, or would remove something that an event must have.
    """
    rules = value.split(",") if isinstance(value, str) else value
    if not isinstance(rules, (list, tuple)) or not all(isinstance(rule, str) for rule in rules):
        raise ValueError("give paths of facets, separated by commas")
    rules = tuple(dict.fromkeys(rule.strip() for rule in rules if rule.strip()))
    for rule in rules:
        _check(rule)
    return rules


def _check(rule: str) -> None:
    path, _, _ = rule.partition("=")
    if not _FORM.fullmatch(rule) or not path.startswith(_ROOTS) or "" in path.split("."):
        roots = ", ".join(f"{root}NAME" for root in _ROOTS)
        raise ValueError(
            f"{rule!r} is not a valid rule; give the path of a facet or of part of one ({roots})"
        )
    event = msgspec.json.decode(_FULL)
    _Rule(rule).apply(event, set())
    lost = next((f"$.run.facets.{needed}" for needed in _NEEDED if _is_lost(event, needed)), None)
    try:
        admit_event(msgspec.json.encode(event))
    except AdmissionError as error:
        lost = error.where
    if lost is not None:
        raise ValueError(
            f"{rule!r} removes something that an event must have ({lost}); "
            f"mask a string with {path}{_MASKS}, or name the whole facet"
        )


def _is_lost(event: Any, needed: str) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a run facet of an event is there, without a text that it needs to be read."""
    facet, *keys = needed.split(".")
    value = event.get("run", {}).get("facets", {}).get(facet)
    if value is None:
        return False
    for key in keys:
        inner = value[0] if isinstance(value, list) and value else value
        value = inner.get(key) if isinstance(inner, dict) else None
    return not isinstance(value, str)
