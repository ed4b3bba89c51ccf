"""The manifest that a new package begins with."""

from __future__ import annotations

import json
from typing import Final

_TEXT: Final = """\
# What this package is, how its program is run, and which datasets it reads and writes.
# `waybill package validate` checks it, `waybill schema package` prints its schema, `waybill run` runs it.

metadata:
  name: {name}
  namespace: default          # of its job
  version: "0.1.0"
  owner: my-team              # who answers for it
  description: Says what the program does.
  # labels: {{domain: sales}}   # further facts, which become tags

runtime:
  command: [python, main.py]  # runs in this folder, without a shell
  # env: {{MODE: night}}        # variables beside the caller's
  # reported_env: [MODE]      # variables whose values are told
  # timeout: 1h 30m           # then it is stopped
  # retries: 2                # how often it is run again when it fails
  # grace: 10s                # how long it may take to stop

inputs:
  - name: orders
    type: file
    binding: orders.csv       # a path in this folder, a URI such as s3://lake/orders, or
    # binding: {{namespace: "kafka://production:9092", dataset: orders}}
    # description: One line for each order.
    # classification: {{pii: true, sensitivity: confidential}}
    # schema:
    #   - {{name: id, type: long, description: The order's number}}

outputs:
  - name: totals
    type: file
    binding: totals.csv

# schedule: {{cron: "0 2 * * *"}}
# tier: important             # or critical, or optional
# expected:                   # the edges that each run should show
#   - {{source: orders, target: totals}}
# objective: {{freshness: 24h, completeness: 0.95}}
"""


def sample_manifest(name: str) -> str:
    """A manifest with comments for a package of this name."""
    return _TEXT.format(name=json.dumps(name, ensure_ascii=False))
