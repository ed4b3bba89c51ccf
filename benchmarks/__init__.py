"""The cost of Waybill, compared with rivals: `python -m benchmarks.<name>`."""
