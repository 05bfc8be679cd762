"""Benchmarks of holdfast beside its peers. `python -m benchmarks.run --help` is the way in."""
