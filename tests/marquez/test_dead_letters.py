"""The box of dead letters is bounded, whatever the backend refuses."""

from __future__ import annotations

import msgspec
import pytest
from stored_rows import StoredRows

from waybill.marquez import DeadLetter
from waybill.marquez.delivery.dead_letter_box import DeadLetterBox


def letter(seq: int, size_bytes: int = 10) -> DeadLetter:
    return DeadLetter(
        backend="marquez",
        seq=seq,
        key=f"run {seq}",
        received_ms=1,
        set_aside_ms=2,
        tries=1,
        status=422,
        reason="no",
        size_bytes=size_bytes,
    )


def letters_in(stored: StoredRows) -> list[DeadLetter]:
    dead = [row for key, row in stored.rows.items() if key.startswith("dead:")]
    return [msgspec.json.decode(row, type=DeadLetter) for row in dead]


def test_the_oldest_letters_make_room() -> None:
    stored, box = StoredRows(), DeadLetterBox([], letters_max=3)
    for seq in range(10):
        box.add(letter(seq), b"x" * 10, stored)
    assert [kept.seq for kept in letters_in(stored)] == [7, 8, 9]
    assert sorted(stored.rows) == ["body:7", "body:8", "body:9", "dead:7", "dead:8", "dead:9"]


def test_large_events_make_room_for_each_other() -> None:
    stored, box = StoredRows(), DeadLetterBox([], bodies_max_bytes=100)
    for seq, size_bytes in enumerate((40, 40, 40, 90, 5)):
        box.add(letter(seq, size_bytes), b"x" * size_bytes, stored)
        assert sum(kept.size_bytes for kept in letters_in(stored)) <= 100
    assert [kept.seq for kept in letters_in(stored)] == [3, 4]


def test_a_letter_larger_than_the_box_is_kept_alone() -> None:
    stored, box = StoredRows(), DeadLetterBox([], bodies_max_bytes=100)
    for seq, size_bytes in enumerate((40, 500)):
        box.add(letter(seq, size_bytes), b"x" * size_bytes, stored)
    assert [kept.seq for kept in letters_in(stored)] == [1]


@pytest.mark.parametrize("before", [0, 2, 3])
def test_letters_of_an_earlier_runner_count(before: int) -> None:
    stored, box = StoredRows(), DeadLetterBox([], letters_max=3)
    for seq in range(before):
        box.add(letter(seq), b"x", stored)
    box = DeadLetterBox(letters_in(stored), letters_max=3)
    box.add(letter(9), b"x", stored)
    assert [kept.seq for kept in letters_in(stored)] == [*range(max(0, before - 2), before), 9]
