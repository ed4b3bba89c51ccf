"""The `waybill` command: one thin function for each subcommand, over what the rooms offer."""

from __future__ import annotations

from waybill.cli.app import main

__all__ = ["main"]
