"""Settings for the homes that faults hit."""

from __future__ import annotations

from pathlib import Path

from waybill.transport import Settings


def settings_in(folder: Path, **given: object) -> Settings:
    """A home and a root of its own below a folder, with the layout on and no runner of its own accord."""
    usual = {
        "home": folder / "home",
        "root": folder / "root",
        "system_name": "tests",
        "provenance_enabled": True,
        "runner": "none",
    }
    return Settings.load({**usual, **given}, origin="tests", env={}, cwd=folder.parent)
