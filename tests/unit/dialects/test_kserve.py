"""The open inference protocol's requests and the facts each must yield (tests/data/dialects/kserve)."""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.kserve_messages import TYPES, frame, infer_request
from tidegate.dialects import CostClass, InferenceRequest, dialect_for
from tidegate.dialects.kserve_grpc import KServeGrpc
from tidegate.dialects.kserve_v2 import KServeV2
from tidegate.dialects.triton_generate import TritonGenerate
from tidegate.errors import MalformedBody

BODIES = sorted((Path(__file__).parents[2] / "data" / "dialects" / "kserve").glob("*.json"))
OF_THE_REQUEST = ("stream", "input_size", "cost_class")


def grpc(body: bytes) -> InferenceRequest:
    return KServeGrpc().parse_request(body, tenant="acme")


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
def test_a_body_yields_its_facts(path: Path) -> None:
    """Every fact that a golden file names is read from its path and its body, binary data at its end included."""
    golden = json.loads(path.read_text())
    body = json.dumps(golden["body"], separators=(",", ":")).encode() + bytes.fromhex(golden.get("tail", ""))
    dialect = dialect_for("POST", golden["path"])
    assert dialect is not None
    assert dialect.name == golden["dialect"]
    parsed = dialect.parse_request(body, tenant="acme")
    found: dict[str, Any] = {name: getattr(parsed, name) for name in OF_THE_REQUEST}
    found["texts"] = [message.text for message in parsed.completion.messages]
    for name in golden["facts"]:
        if name not in found:
            found[name] = getattr(parsed.completion, name)
    assert {name: found[name] for name in golden["facts"]} == golden["facts"]
    assert parsed.completion.tenant == "acme"


def test_there_are_golden_bodies() -> None:
    """The folder was found: an empty parametrisation would pass for nothing."""
    assert len(BODIES) >= 11


def test_json_that_only_lenient_engines_take() -> None:
    """A byte order mark and NaN among the data hide no cost, also before binary data."""
    body = b'\xef\xbb\xbf{"inputs":[{"datatype":"FP32","shape":[2,5],"data":[NaN,-Infinity]}]}'
    for tail in (b"", b"\x00\x01\x02"):
        assert KServeV2("m").parse_request(body + tail, tenant="").input_size == 10


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"inputs":1}', b'{"inputs":[1]}', b'{"inputs":[{}]', b"\x00" * 9, b"[" * 100_000]
)
def test_what_is_no_infer_body_is_malformed(body: bytes) -> None:
    """It passes at the default cost, and the engine gives its own answer."""
    with pytest.raises(MalformedBody):
        KServeV2("m").parse_request(body, tenant="")


def test_a_body_of_millions_of_objects_costs_no_memory() -> None:
    """It is not taken apart: its length stands for its size, and it can be refused like any other."""
    body = b'{"inputs":[' + b"{}," * 3_000_000 + b"{}]}"
    tracemalloc.start()
    parsed = KServeV2("m").parse_request(body, tenant="")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert parsed.input_size == len(body)
    assert peak_bytes < 1_000_000


def test_a_grpc_message() -> None:
    """Model and elements of all inputs are read; data in the message and raw data count alike."""
    request = infer_request("resnet", shape=(4, 3, 32, 32))
    contents = request.inputs.add(name="Z", datatype="FP32", shape=(2, 2)).contents
    contents.fp32_contents.extend([0.5] * 4)
    parsed = grpc(frame(request))
    assert parsed.completion.model == "resnet"
    assert (parsed.input_size, parsed.cost_class, parsed.stream) == (4 * 3 * 32 * 32 + 4, CostClass.TIMED, False)


def test_text_in_a_grpc_message_counts_its_bytes() -> None:
    """Raw or not, a tensor of BYTES is as large as its bytes."""
    raw = TYPES["ModelInferRequest"](model_name="ranker")
    raw.inputs.add(name="A", datatype="FP32", shape=(3,))
    raw.inputs.add(name="B", datatype="BYTES", shape=(1,))
    raw.raw_input_contents.extend([bytes(12), bytes(5000)])
    assert grpc(frame(raw)).input_size == 3 + 5000
    plain = TYPES["ModelInferRequest"](model_name="ranker")
    plain.inputs.add(name="B", datatype="BYTES", shape=(1,)).contents.bytes_contents.append(b"x" * 300)
    assert 300 <= grpc(frame(plain)).input_size <= 310


def test_dimensions_one_by_one() -> None:
    """Old encoders write a field a dimension; a dimension below 1 says nothing about the size."""
    tensor = b"\x12\x04FP32" + b"\x18\x04" + b"\x18\x05"
    message = b"\x0a\x01m" + b"\x2a" + bytes([len(tensor)]) + tensor
    assert grpc(b"\0" + struct.pack(">I", len(message)) + message).input_size == 20
    assert grpc(frame(infer_request(shape=(2,)))).input_size == 2
    odd = TYPES["ModelInferRequest"](model_name="m")
    odd.inputs.add(datatype="FP32", shape=(-1, 4))
    assert grpc(frame(odd)).input_size == 0


def test_a_compressed_message_is_of_unknown_model_and_size() -> None:
    """It is weighed all the same, so that compression is no way around admission."""
    parsed = grpc(frame(infer_request(), flag=1))
    assert (parsed.completion.model, parsed.input_size, parsed.cost_class) == ("", 0, CostClass.TIMED)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0\0",
        b"\0\0\0\0\x09",
        frame(infer_request()) * 2,
        frame(infer_request(), flag=2),
        frame(infer_request())[:-1],
        b"\0\0\0\0\x01\x0b",  # a group
        b"\0\0\0\0\x02\x0a\x05",  # longer than its message
        b"\0\0\0\0\x0b" + b"\xff" * 11,
    ],
)
def test_what_is_no_message_is_malformed(body: bytes) -> None:
    """Neither a frame of another length nor protobuf that ends within a field is guessed at."""
    with pytest.raises(MalformedBody):
        grpc(body)


def test_a_message_of_millions_of_fields_is_not_read_to_its_end() -> None:
    """After 4,096 fields the bytes that are left stand for the size, so that reading stays cheap."""
    message = b"\x0a\x01m" + b"\x10\x01" * 2_000_000
    parsed = grpc(b"\0" + struct.pack(">I", len(message)) + message)
    assert parsed.completion.model == "m"
    assert parsed.input_size == len(message) - 3 - 2 * 4095


def test_refusals_in_their_own_words() -> None:
    """KServe's error object, also where something that is not gRPC asks on gRPC's path."""
    for dialect in (KServeV2("m"), TritonGenerate("m", stream=True), KServeGrpc()):
        body = dialect.error_body(status=429, code="queue_full", message="full: é \ud800")
        assert json.loads(body) == {"error": "full: é ?"}
