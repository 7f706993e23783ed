"""Saved records: parts of a state file that somebody may have damaged."""

from collections.abc import Mapping


def as_record(value: object) -> Mapping[str, object]:
    """A part of a saved record that is a record itself; ValueError where it is not."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} is not a record")
    return value
