"""What a start buys: see `python -m benchmarks.starts --help`."""
