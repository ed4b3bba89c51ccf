"""What Waybill costs, in comparison with rivals: `python -m benchmarks.<name>`."""
