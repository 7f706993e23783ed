"""The open inference protocol's messages for tests, by protobuf's own library: a codec independent of the dialect's."""

import struct
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "inference.GRPCInferenceService"
_F = descriptor_pb2.FieldDescriptorProto
_FIELDS: dict[str, list[tuple[int, str, int, bool, str]]] = {
    "InferTensorContents": [
        (1, "bool_contents", _F.TYPE_BOOL, True, ""),
        (2, "int_contents", _F.TYPE_INT32, True, ""),
        (6, "fp32_contents", _F.TYPE_FLOAT, True, ""),
        (8, "bytes_contents", _F.TYPE_BYTES, True, ""),
    ],
    "InferInputTensor": [
        (1, "name", _F.TYPE_STRING, False, ""),
        (2, "datatype", _F.TYPE_STRING, False, ""),
        (3, "shape", _F.TYPE_INT64, True, ""),
        (5, "contents", _F.TYPE_MESSAGE, False, "InferTensorContents"),
    ],
    "InferOutputTensor": [
        (1, "name", _F.TYPE_STRING, False, ""),
        (2, "datatype", _F.TYPE_STRING, False, ""),
        (3, "shape", _F.TYPE_INT64, True, ""),
    ],
    "ModelInferRequest": [
        (1, "model_name", _F.TYPE_STRING, False, ""),
        (2, "model_version", _F.TYPE_STRING, False, ""),
        (3, "id", _F.TYPE_STRING, False, ""),
        (5, "inputs", _F.TYPE_MESSAGE, True, "InferInputTensor"),
        (7, "raw_input_contents", _F.TYPE_BYTES, True, ""),
    ],
    "ModelInferResponse": [
        (1, "model_name", _F.TYPE_STRING, False, ""),
        (3, "id", _F.TYPE_STRING, False, ""),
        (5, "outputs", _F.TYPE_MESSAGE, True, "InferOutputTensor"),
        (6, "raw_output_contents", _F.TYPE_BYTES, True, ""),
    ],
    "ModelStreamInferResponse": [
        (1, "error_message", _F.TYPE_STRING, False, ""),
        (2, "infer_response", _F.TYPE_MESSAGE, False, "ModelInferResponse"),
    ],
}


def _types() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package="inference", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, field, kind, repeated, of in fields:
            label = _F.LABEL_REPEATED if repeated else _F.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, type=kind, label=label)  # type: ignore[arg-type]
            if of:
                added.type_name = f".inference.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    find = pool.FindMessageTypeByName  # type: ignore[no-untyped-call]
    return {name: message_factory.GetMessageClass(find(f"inference.{name}")) for name in _FIELDS}


TYPES = _types()


def infer_request(model: str = "resnet", *, shape: tuple[int, ...] = (1, 3, 8, 8), request_id: str = "") -> Any:
    """A request with one tensor of 32-bit floats, its data raw."""
    request = TYPES["ModelInferRequest"](model_name=model, id=request_id)
    request.inputs.add(name="X", datatype="FP32", shape=shape)
    elements = 1
    for dimension in shape:
        elements *= dimension
    request.raw_input_contents.append(bytes(4 * elements))
    return request


def infer_response(model: str = "resnet", *, request_id: str = "", number: float = 0.0) -> Any:
    """An answer with this one number."""
    response = TYPES["ModelInferResponse"](model_name=model, id=request_id)
    response.outputs.add(name="Y", datatype="FP32", shape=(1, 1))
    response.raw_output_contents.append(struct.pack("<f", number))
    return response


def frame(message: Any, *, flag: int = 0) -> bytes:
    """The message as gRPC puts it into a body."""
    data: bytes = message.SerializeToString()
    return bytes([flag]) + len(data).to_bytes(4, "big") + data
