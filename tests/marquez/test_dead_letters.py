"""The box of dead letters is bounded, whatever the backend refuses."""

from __future__ import annotations

import msgspec
from letters import letter
from stored_rows import StoredRows

from waybill.marquez import DeadLetter
from waybill.marquez.delivery.dead_letter_box import DeadLetterBox


def letters_in(stored: StoredRows) -> list[DeadLetter]:
    dead = [row for key, row in stored.rows.items() if key.startswith("dead:")]
    return [msgspec.json.decode(row, type=DeadLetter) for row in dead]


def test_large_events_make_room_for_each_other() -> None:
    stored, box = StoredRows(), DeadLetterBox([], bodies_max_bytes=100)
    kept = []
    for seq, size_bytes in enumerate((40, 40, 40, 500, 5)):
        box.add(letter(seq, size_bytes=size_bytes), b"x" * size_bytes, stored)
        kept.append([one.seq for one in letters_in(stored)])
    assert kept == [[0], [0, 1], [1, 2], [3], [4]], "one that is larger than the box is kept alone"


def test_the_oldest_letters_make_room_those_of_an_earlier_runner_too() -> None:
    stored = StoredRows()
    for seq in range(10):
        box = DeadLetterBox(letters_in(stored), letters_max=3)
        box.add(letter(seq), b"x", stored)
    assert sorted(stored.rows) == ["body:7", "body:8", "body:9", "dead:7", "dead:8", "dead:9"]
