"""The `waybill` command: one thin function for each subcommand, over the functions of the rooms."""

from __future__ import annotations

from .starting import own_process


def main() -> None:
    """Run the command line of this process."""
    with own_process():
        from .app import main as run

        run()
