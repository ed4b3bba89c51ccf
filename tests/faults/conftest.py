"""A small disk for the tests of this folder."""

from __future__ import annotations

from seam.disks import disk

__all__ = ["disk"]
