"""The one place that every question about records passes, given who asks it."""

from __future__ import annotations

import getpass
import os
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

_Question = TypeVar("_Question")


class Door(StrEnum):
    """The way by which a question comes."""

    COMMAND = "command"
    HTTP = "http"
    PYTHON = "python"


class Asker(NamedTuple):
    """Who asks.

    Attributes:
        door: the way by which the question comes.
        name: of a command, the user of the operating system; over HTTP, the API key's name, empty without
            a key; in Python, ``python``.
    """

    door: Door
    name: str


PYTHON: Final = Asker(Door.PYTHON, "python")
"""Who asks in Python."""


def os_user() -> Asker:
    """The user who runs a command; by number, if the system knows no name."""
    try:
        return Asker(Door.COMMAND, getpass.getuser())
    except (OSError, KeyError, ImportError):
        return Asker(Door.COMMAND, str(os.getuid()))


def allow(asker: Asker, question: _Question) -> _Question:  # noqa: ARG001 - every question is allowed so far
    """The question as it may be asked: so far every question, unchanged.

    Args:
        asker: who asks.
        question: a `Query`; of `waybill sql`, the query's text; of `waybill explain`, the did; of `waybill
            diff`, both runs; of a summary's link, its number; of the graph of datasets, the question; of
            `waybill duplicates`, that word; of `/slis`, that word.
    """
    return question
