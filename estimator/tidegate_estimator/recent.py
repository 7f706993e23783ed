"""Tables of fixed size: whoever has been idle longest makes room."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

V = TypeVar("V")


def touch(table: OrderedDict[int, V], key: int, make: Callable[[], V], limit: int) -> V:
    """The key's entry, made where there is none; it is the last to leave now."""
    entry = table.get(key)
    if entry is None:
        entry = table[key] = make()
        if len(table) > limit:
            table.popitem(last=False)
    table.move_to_end(key)
    return entry
