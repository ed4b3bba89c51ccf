"""A process's report before it died: what it offered, what was acknowledged, and what must never happen."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """The emissions of one or more processes.

    Attributes:
        offered: numbers of emissions about to be made, in order; they may have been kept or not.
        acknowledged: numbers of acknowledged emissions.
        refused: numbers of refused emissions, with the error's type.
        faults: events that must never happen, for example an error of a foreign type.
    """

    offered: list[int] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        """Enter a process's message."""
        word, value = json.loads(line)
        if word == "offer":
            self.offered.append(value)
        elif word == "ack":
            self.acknowledged.add(value)
        elif word == "refuse":
            self.refused[value[0]] = value[1]
        else:
            self.faults.append(value)


class Teller:
    """A process's end of the pipe to its ledger; messages survive even if the process dies next.

    Args:
        descriptor: the end to write to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, word: str, value: object) -> None:
        """Send one message."""
        os.write(self._descriptor, json.dumps([word, value]).encode() + b"\n")
