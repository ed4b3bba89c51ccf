"""Random choices that a seed repeats."""

from __future__ import annotations

from random import Random


def chance_from(*seeds: object) -> Random:
    """A source of random choices that is the same for the same seeds."""
    return Random("/".join(map(str, seeds)))  # noqa: S311 - it has to be predictable
