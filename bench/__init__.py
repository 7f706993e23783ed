"""Benchmarks: programs that print tables. They are never tests; a slow machine makes them slow, not red."""
