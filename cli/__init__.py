"""The `waybill` command: one thin function for each subcommand, over the functions of the rooms."""

from __future__ import annotations

from .starting import main

__all__ = ["main"]
