"""What Waybill costs, each figure beside its rival: `python -m benchmarks.<name>`."""
