"""Restoring the rows that a root has lost."""

from waybill.exporter.repairing.repairing import RepairReport as RepairReport, repair as repair
