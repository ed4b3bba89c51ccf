"""``python -m waybill``: the command line, for when its script is not on the path."""

from __future__ import annotations

from waybill.cli import main

main()
