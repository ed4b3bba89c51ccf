"""``python -m waybill.cli``: the command line, for when its script is not on the path."""

from __future__ import annotations

from . import main

main()
