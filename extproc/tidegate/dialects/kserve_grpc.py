"""POST /inference.GRPCInferenceService/ModelInfer: the open inference protocol over gRPC, one request and one answer.

    body      one gRPC message: flag (1: compressed), length as four bytes, big end first, ModelInferRequest
    request   1 model_name, 5 inputs, 7 raw_input_contents: the data of the inputs, in their order
    input     2 datatype, 3 shape, 5 contents: the data where they are not raw

A refusal is a gRPC status that Envoy makes of ours; only what is not gRPC at all, on this path, gets `error_body`.
"""

from itertools import islice

from tidegate.dialects import openai_body
from tidegate.dialects.base import CostClass, InferenceRequest
from tidegate.dialects.protobuf_wire import fields, read_varint, signed
from tidegate.dialects.tensors import DIMENSIONS_MAX, SIZE_MAX, TENSORS_MAX, elements_of, error_object
from tidegate.errors import MalformedBody
from tidegate_estimator import CompletionRequest

PATH = "/inference.GRPCInferenceService/ModelInfer"
MODEL_BYTES_MAX = 512
_FRAME_BYTES = 5
_FIELDS_MAX, _TENSOR_FIELDS_MAX = 4096, 64
_MODEL_NAME, _INPUTS, _RAW_CONTENTS = 1, 5, 7
_DATATYPE, _SHAPE, _CONTENTS = 2, 3, 5


class KServeGrpc:
    """Unary inference; its streaming sister never comes here (see envoy.yaml)."""

    name = "kserve_grpc"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """Model and size of the input; MalformedBody where this is not one gRPC message, or no protobuf inside.

        A compressed message is not unpacked: its model and its size are unknown, and so it costs what requests of the
        pool cost on average.
        """
        if len(body) < _FRAME_BYTES or int.from_bytes(body[1:_FRAME_BYTES], "big") != len(body) - _FRAME_BYTES:
            raise MalformedBody("not one gRPC message")
        if body[0] > 1:
            raise MalformedBody("a gRPC message with an unknown flag")
        model, size = ("", 0) if body[0] == 1 else _read(body)
        return InferenceRequest(
            completion=CompletionRequest(tenant=tenant, model=model),
            stream=False,
            cost_class=CostClass.TIMED,
            input_size=size,
        )

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """The protocol's error object over HTTP, for a caller that does not speak gRPC."""
        return error_object(message)


def _read(body: bytes) -> tuple[str, int]:
    """Model name, and size of the input; of the first 4,096 fields, and beyond them by their bytes."""
    model, tensors, raw_bytes, at = "", list[tuple[bool, int]](), list[int](), _FRAME_BYTES
    for field in islice(fields(body, _FRAME_BYTES, len(body)), _FIELDS_MAX):
        at = field.end
        if not field.has_bytes:
            continue
        if field.number == _MODEL_NAME:
            name = body[field.start : min(field.end, field.start + MODEL_BYTES_MAX)]
            model = name.decode("utf-8", "replace")[: openai_body.MODEL_CHARS_MAX]
        elif field.number == _INPUTS and len(tensors) < TENSORS_MAX:
            tensors.append(_read_tensor(body, field.start, field.end))
        elif field.number == _RAW_CONTENTS and len(raw_bytes) < TENSORS_MAX:
            raw_bytes.append(field.end - field.start)
    size = len(body) - at
    for place, (is_bytes, tensor_size) in enumerate(tensors):
        size += raw_bytes[place] if is_bytes and place < len(raw_bytes) else tensor_size
    return model, min(size, SIZE_MAX)


def _read_tensor(body: bytes, start: int, end: int) -> tuple[bool, int]:
    """Whether an input is of BYTES, and its size: elements of its shape, or bytes of its contents."""
    is_bytes, shape, content_bytes = False, list[int](), 0
    for field in islice(fields(body, start, end), _TENSOR_FIELDS_MAX):
        if field.number == _DATATYPE and field.has_bytes:
            is_bytes = body[field.start : field.end][:6] == b"BYTES"
        elif field.number == _SHAPE and field.has_bytes:
            at = field.start
            while at < field.end and len(shape) < DIMENSIONS_MAX:
                dimension, at = read_varint(body, at, field.end)
                shape.append(signed(dimension))
        elif field.number == _SHAPE:
            shape.append(signed(field.value))
        elif field.number == _CONTENTS and field.has_bytes:
            content_bytes += field.end - field.start
    if is_bytes:
        return True, content_bytes
    return False, elements_of(shape) if shape else 0
