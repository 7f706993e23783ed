"""The core: synchronous, deterministic, told the time. It imports no event loop, no clock, no randomness, no I/O."""
