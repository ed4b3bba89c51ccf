"""What is printed is text: names that come from others cannot steer a terminal."""

from __future__ import annotations

import json
import re

import pytest

from waybill.cli import console

HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202egpj.exe\u2066\x7f\r\n2026-01-01\tz"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    "show",
    [
        console.line,
        console.note,
        console.error,
        console.drawing,
        lambda text: console.line(("bold: ", "bold"), (text, "red")),
        lambda text: console.table((text,), [(text,)]),
        lambda text: console.drawing(console.grid((text,), [(text,)])),
        lambda text: console.json({text: [text]}),
    ],
)
def test_control_characters_and_marks_of_direction_are_shown_as_escapes(
    show: object, capsys: pytest.CaptureFixture[str]
) -> None:
    show(HOSTILE)  # type: ignore[operator]
    printed = "".join(capsys.readouterr())
    assert "owned" in printed
    assert not STEERING.search(printed), printed
    assert r"\u202e" in printed


def test_json_says_the_same_with_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    console.json([HOSTILE])
    assert json.loads(capsys.readouterr().out) == [HOSTILE]


def test_a_name_stays_within_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.line(HOSTILE)
    assert len(capsys.readouterr().out.splitlines()) == 1
