"""The local stack: Marquez, the collector, and what watches them, for a machine with Docker."""

from __future__ import annotations

__all__: list[str] = []
