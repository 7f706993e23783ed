"""How large the input of a model without tokens is, from what its tensors say of themselves.

    input_size = sum over the input tensors of the product of their shape; of tensors of BYTES, their bytes

Elements tell an image from a batch of them whatever the number format. A tensor of text or of encoded images has one
element an item however long that is, so there its bytes count. The data themselves are never looked at.
"""

from collections.abc import Iterable

import msgspec

from tidegate.dialects.lax import error_text

SIZE_MAX = 2**62
TENSORS_MAX = 256  # of one request; an engine's model has a handful
DIMENSIONS_MAX = 32


def elements_of(shape: Iterable[int]) -> int:
    """Elements of a tensor of this shape, at most 2^62; 0 where a dimension is no number of elements."""
    elements = 1
    for dimension in shape:
        if dimension < 1:
            return 0
        elements = min(elements * dimension, SIZE_MAX)  # so that a long list of large ones stays cheap
    return elements


def error_object(message: str) -> bytes:
    """The protocol's error object, and Triton's: nothing but a message."""
    return msgspec.json.encode({"error": error_text(message)})
