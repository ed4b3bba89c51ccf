"""Where the exporter's tests find what they share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from layouts import Layout


@pytest.fixture
def layout(root: Path) -> Layout:
    """An empty root."""
    return Layout(root)
