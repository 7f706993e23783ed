"""Recorded traces are not part of the repository: a test that needs them is skipped where they are not beside it."""

NO_TRACES = "no recorded traces here"
"""The one reason to skip that is no fault of the machine."""
