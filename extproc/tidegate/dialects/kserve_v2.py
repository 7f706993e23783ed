"""POST /v2/models/MODEL[/versions/VERSION]/infer: the open inference protocol over HTTP, as Triton and KServe speak it.

The body is a JSON object, and with the binary tensor extension it is followed at once by the tensors' bytes; the object
then says how many there are of each (`binary_data_size`). The length of the object stands in a header, which is not
needed: a JSON object ends where it ends.
"""

import re

import msgspec
from msgspec import Struct

from tidegate.dialects.base import CostClass, InferenceRequest
from tidegate.dialects.lax import OptionalRaw, read, read_int, read_leniently, read_text, size_chars
from tidegate.dialects.tensors import DIMENSIONS_MAX, SIZE_MAX, TENSORS_MAX, elements_of, error_object
from tidegate_estimator import CompletionRequest

_OBJECTS_MAX = 65_536  # in a body that is taken apart: each costs memory, and a body of nothing else has millions
_SHAPE_CHARS_MAX = 1024
_BINARY_FOLLOWS = re.compile(r"trailing characters \(byte ([0-9]{1,12})\)")


class _Parameters(Struct):
    binary_data_size: OptionalRaw = msgspec.UNSET


class _Tensor(Struct):
    datatype: OptionalRaw = msgspec.UNSET
    shape: OptionalRaw = msgspec.UNSET
    parameters: OptionalRaw = msgspec.UNSET
    data: OptionalRaw = msgspec.UNSET


class _Body(Struct):
    inputs: list[_Tensor]


_body = msgspec.json.Decoder(_Body)
_shape = msgspec.json.Decoder(list[int])
_parameters = msgspec.json.Decoder(_Parameters)


class KServeV2:
    """Inference by tensors; the model's name stands in the path, so there is one of these a request."""

    name = "kserve_v2"
    __slots__ = ("_model",)

    def __init__(self, model: str) -> None:
        self._model = model

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The size of the input tensors; MalformedBody where the body does not begin with an object that lists them.

        A body of more than 65,536 braces is not taken apart: its size is then its length.
        """
        size = len(body) if body.count(b"{") > _OBJECTS_MAX else _input_size(read_leniently(_object_in_front, body))
        return InferenceRequest(
            completion=CompletionRequest(tenant=tenant, model=self._model),
            stream=False,
            cost_class=CostClass.TIMED,
            input_size=size,
        )

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """The protocol's error object: nothing but a message."""
        return error_object(message)


def _object_in_front(body: bytes) -> _Body:
    try:
        return _body.decode(body)
    except msgspec.DecodeError as error:
        # It has read a whole object before it complains of what follows, and says where it was after one byte of that.
        follows = _BINARY_FOLLOWS.search(str(error))
        if follows is None:
            raise
        return _body.decode(memoryview(body)[: int(follows[1]) - 1])


def _input_size(body: _Body) -> int:
    return min(sum(map(_tensor_size, body.inputs[:TENSORS_MAX])), SIZE_MAX)


def _tensor_size(tensor: _Tensor) -> int:
    if read_text(tensor.datatype, chars_max=16) == "BYTES":
        parameters = read(_parameters, tensor.parameters)
        binary = None if parameters is None else read_int(parameters.binary_data_size, at_least=0, at_most=SIZE_MAX)
        return size_chars(tensor.data) if binary is None else binary
    shape = read(_shape, tensor.shape) if size_chars(tensor.shape) <= _SHAPE_CHARS_MAX else None
    return elements_of(shape[:DIMENSIONS_MAX]) if shape else 0
