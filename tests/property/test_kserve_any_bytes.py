"""Whatever the bytes, the open inference protocol's dialects yield facts in range or MalformedBody."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kserve_messages import TYPES, frame
from tidegate.dialects import Dialect
from tidegate.dialects.kserve_grpc import KServeGrpc
from tidegate.dialects.kserve_v2 import KServeV2
from tidegate.dialects.tensors import SIZE_MAX
from tidegate.dialects.triton_generate import TritonGenerate
from tidegate.errors import MalformedBody

KEYS = ["inputs", "name", "datatype", "shape", "data", "parameters", "binary_data_size", "text_input", "max_tokens"]
KEYS += ["n", "beam_width", "stop_words", "stream", "min_length", "ignore_eos", "temperature", "outputs", "id"]
DIALECTS: tuple[Dialect, ...] = (KServeV2("m"), KServeGrpc(), TritonGenerate("m", stream=True))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["BYTES", "FP32", "é", "\ud800", "1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
objects = st.dictionaries(st.sampled_from(KEYS), values, max_size=8).map(lambda value: json.dumps(value).encode())
with_tail = st.tuples(objects, st.binary(max_size=40)).map(b"".join)
shapes = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)


def grpc_body(model: str, tensors: list[tuple[str, list[int]]], raw: list[bytes]) -> bytes:
    request = TYPES["ModelInferRequest"](model_name=model, raw_input_contents=raw)
    for datatype, shape in tensors:
        request.inputs.add(datatype=datatype, shape=shape)
    return frame(request)


messages = st.builds(
    grpc_body,
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.lists(st.tuples(st.sampled_from(["FP32", "BYTES", ""]), shapes), max_size=4),
    st.lists(st.binary(max_size=30), max_size=4),
)
framed = st.binary(max_size=200).map(lambda data: b"\0" + len(data).to_bytes(4, "big") + data)
damaged = st.tuples(messages, st.integers(5, 200), st.binary(max_size=4)).map(lambda t: _reframed(*t))


def _reframed(body: bytes, at: int, put: bytes) -> bytes:
    data = body[5:at] + put + body[at + len(put) :]
    return b"\0" + len(data).to_bytes(4, "big") + data


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=300), objects, with_tail, messages, framed, damaged))
def test_any_bytes_are_facts_in_range_or_malformed(body: bytes) -> None:
    """No other exception leaves parse_request, and every fact is in its range."""
    for dialect in DIALECTS:
        try:
            parsed = dialect.parse_request(body, tenant="t")
        except MalformedBody:
            continue
        assert 0 <= parsed.input_size <= SIZE_MAX
        assert len(parsed.completion.model) <= 128
        assert 1 <= parsed.completion.sequences <= 128 * 2048
        assert parsed.completion.max_tokens is None or 1 <= parsed.completion.max_tokens < 2**31
        parsed.completion.model.encode()


@settings(max_examples=200, deadline=None)
@given(messages)
def test_every_true_message_is_read(body: bytes) -> None:
    """What protobuf's own library writes is never malformed."""
    KServeGrpc().parse_request(body, tenant="t")
