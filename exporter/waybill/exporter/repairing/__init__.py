"""Filing again what a root has lost."""

from waybill.exporter.repairing.repairing import RepairReport as RepairReport, repair as repair
