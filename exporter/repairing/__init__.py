"""Restoring the rows that a root has lost."""

from .repairing import RepairReport, repair
