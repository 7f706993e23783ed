"""Dynamic metadata as it comes back in an access-log entry."""

from math import isfinite

from google.protobuf.struct_pb2 import Struct


class Fields:
    """Scalars of one metadata namespace, by name: looking up a few costs a third of converting the whole struct."""

    __slots__ = ("_fields",)

    def __init__(self, struct: Struct) -> None:
        self._fields = struct.fields

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def text(self, name: str) -> str:
        """A string; empty where the field is missing or of another type."""
        return self._fields[name].string_value if name in self._fields else ""

    def number(self, name: str) -> float | None:
        """A finite number; None where the field is missing or anything else."""
        if name not in self._fields:
            return None
        field = self._fields[name]
        return field.number_value if field.HasField("number_value") and isfinite(field.number_value) else None

    def flag(self, name: str) -> bool:
        """A boolean; False where the field is missing or of another type."""
        return name in self._fields and self._fields[name].bool_value
