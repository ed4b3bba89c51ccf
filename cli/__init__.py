"""The `waybill` command: one thin function for each subcommand, over the functions of the rooms."""

from __future__ import annotations

from .starting import own_process as _own_process

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process."""
    with _own_process():
        from .app import main as run

        run()
