"""The fault tests' own modules are importable, and what they emit is known by number."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
