"""Forms with audio in them: the small fields are found, the file costs by its size, and no form can hurt."""

import email.policy
from email.message import EmailMessage

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.dialects.multipart import FIELD_BYTES_MAX, PARTS_MAX, small_fields
from tidegate.dialects.openai_audio import OpenAITranscription
from tidegate.errors import MalformedBody

CRLF = b"\r\n"
B = b"----boundary7MA4"


def part(name: str, value: bytes, *, filename: str = "", headers: bytes = b"") -> bytes:
    named = f'; filename="{filename}"' if filename else ""
    return f'Content-Disposition: form-data; name="{name}"{named}\r\n'.encode() + headers + CRLF + value


def form(*parts: bytes, boundary: bytes = B) -> bytes:
    return b"".join(b"--" + boundary + CRLF + each + CRLF for each in parts) + b"--" + boundary + b"--" + CRLF


FILE = part("file", b"RIFF" + bytes(range(256)) * 100, filename="a.wav", headers=b"Content-Type: audio/wav\r\n")


def test_a_form_yields_its_facts() -> None:
    """Model, stream flag, hint and bound come from their parts; the audio costs a token for 2,400 bytes."""
    body = form(
        part("model", b"whisper-1"),
        part("stream", b"true"),
        part("file", b"\xff" * 240_000, filename="a.mp3"),
        part("prompt", "Café Müller".encode()),
        part("max_completion_tokens", b"400"),
        part("temperature", b"0.2"),
    )
    parsed = OpenAITranscription().parse_request(body, tenant="acme")
    completion = parsed.completion
    assert (parsed.stream, completion.model, completion.tenant) == (True, "whisper-1", "acme")
    assert (completion.messages[0].text, completion.prompt_chars) == ("Café Müller", 11)
    assert (completion.max_tokens, completion.temperature) == (400, 0.2)
    assert 100 <= completion.media_tokens <= 101


@pytest.mark.parametrize("value", [b"false", b"0", b"", b"\xff", b"truely"])
def test_what_is_not_true_is_no_stream(value: bytes) -> None:
    """Only the words that engines read as true."""
    assert not OpenAITranscription().parse_request(form(part("stream", value), FILE), tenant="").stream


@pytest.mark.parametrize("value", [b"-5", b"5.5", b"lots", b"", b"9" * 11])
def test_a_bound_that_is_no_number_is_none(value: bytes) -> None:
    """It is the engine's to complain; zero reads as one, as everywhere."""
    body = form(part("max_completion_tokens", value), FILE)
    assert OpenAITranscription().parse_request(body, tenant="").completion.max_tokens is None


async def test_what_aiohttp_sends_is_read() -> None:
    """A form as a real client writes it, extra headers and all."""
    writer = aiohttp.MultipartWriter("form-data")
    writer.append("whisper-1").set_content_disposition("form-data", name="model")
    writer.append(b"\x00\r\n--" * 5000, {"content-type": "audio/wav"}).set_content_disposition(
        "form-data", name="file", filename="a.wav"
    )
    writer.append("true").set_content_disposition("form-data", name="stream")
    assert small_fields(await writer.as_bytes()) == {"model": b"whisper-1", "stream": b"true"}


def test_the_standard_library_agrees() -> None:
    """Python's own parser finds the same fields in the same bytes."""
    body = form(part("model", b"m 1"), FILE, part("language", b"de"), part("x-1", b"a\r\nb"))
    head = b'Content-Type: multipart/form-data; boundary="' + B + b'"\r\n\r\n'
    parsed = email.message_from_bytes(head + body, EmailMessage, policy=email.policy.HTTP)
    theirs = {
        each.get_param("name", header="content-disposition"): each.get_payload(decode=True)
        for each in parsed.iter_parts()
        if each.get_filename() is None
    }
    assert small_fields(body) == theirs


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"--",
        b"--\r\n",
        b"--b",
        b"--b\r\n",
        b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\ny",  # never ends
        b"preamble\r\n--b\r\n\r\n\r\n--b--",
        b"--" + b"x" * 1000 + b"\r\n",
        b"\r\n" * 100_000,
    ],
)
def test_what_is_no_form_is_malformed(body: bytes) -> None:
    """Without a boundary at the start, or without a part that ends, there is nothing to read."""
    with pytest.raises(MalformedBody):
        OpenAITranscription().parse_request(body, tenant="")


def test_what_lies_beyond_the_bounds_is_passed_over() -> None:
    """Long fields, long headers, parts without end and nameless parts yield nothing, and the size still counts."""
    long_value = part("model", b"m" * (FIELD_BYTES_MAX + 1))
    long_headers = part("stream", b"true", headers=b"X-A: " + b"a" * 2000 + CRLF)
    nameless = b"Content-Type: text/plain" + CRLF + CRLF + b"x"
    body = form(long_value, long_headers, nameless, part("language", b"de"))
    assert small_fields(body) == {"language": b"de"}
    many = form(*[part(f"f{n}", b"v") for n in range(PARTS_MAX + 50)])
    assert len(small_fields(many)) == PARTS_MAX
    assert OpenAITranscription().parse_request(body, tenant="").completion.media_tokens == len(body) // 2400


def test_a_lie_about_the_boundary_hides_no_audio() -> None:
    """The whole body counts, whatever a first part of another boundary makes of it."""
    body = form(part("model", b"tiny"), boundary=b"fake") + form(FILE, FILE, FILE, FILE)
    assert OpenAITranscription().parse_request(body, tenant="").completion.media_tokens == len(body) // 2400


hostile = st.lists(
    st.sampled_from(
        [B, b"--", CRLF, b"\r", b"\n", b"content-disposition: form-data; name=", b'"', b"x", b"; filename="]
    )
    | st.binary(max_size=8),
    max_size=40,
).map(b"".join)


@given(hostile | hostile.map(lambda tail: b"--" + B + CRLF + tail + b"\r\n--" + B + b"--"))
def test_any_bytes_are_fields_or_malformed(body: bytes) -> None:
    """No other exception leaves it, and every value is a piece of the body."""
    try:
        fields = small_fields(body)
    except MalformedBody:
        return
    assert all(value in body for value in fields.values())
