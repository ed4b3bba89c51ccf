"""The cache folder: what is fetched or made once per machine and may be deleted at any time."""

from __future__ import annotations

from pathlib import Path

from waybill.transport.files import Files


def cache_folder(given: Path | None = None) -> Path:
    """Make the folder for the listener's JAR and the Java wrapper: the platform's unless given."""
    import platformdirs

    folder = given or Path(platformdirs.user_cache_dir("waybill", appauthor=False))
    Files().make_folder(folder)
    return folder
