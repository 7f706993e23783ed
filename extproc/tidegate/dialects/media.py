"""Prompt tokens of images, audio and documents, by rule: what the request says is all we have, nothing is decoded.

image_url: 85 tokens where `detail` is low, else 765 (one 85-token overview and four 170-token tiles: a 1024 x 1024
picture as OpenAI's tiling prices it; open models lie between 256 and 2,880).
input_audio: 1 token per 3,200 base64 characters: 2,400 bytes, 75 ms of 16-bit mono PCM at 16 kHz, about 13 tokens a
second. For compressed audio this is low, so at least 25 tokens a part. An audio file: the same by its bytes.
document: 1 token per 40 base64 characters: 30 bytes, so that a page of a PDF (30 to 100 KB) has 1,000 to 3,400. At
least 1,500, which also stand for one that is only named, by a URL or an id.
history: 1,000 tokens for earlier turns that the engine has kept and the request only names.
"""

import msgspec

from tidegate.dialects.lax import OptionalRaw, read, size_chars

IMAGE_TOKENS = 765
IMAGE_LOW_DETAIL_TOKENS = 85
AUDIO_TOKENS_MIN = 25
AUDIO_CHARS_PER_TOKEN = 3200
AUDIO_BYTES_PER_TOKEN = 2400
DOCUMENT_TOKENS_MIN = 1500
DOCUMENT_CHARS_PER_TOKEN = 40
HISTORY_TOKENS = 1000


class _Image(msgspec.Struct):
    detail: msgspec.Raw = msgspec.Raw()


_image = msgspec.json.Decoder(_Image)


def image_tokens(image_url: OptionalRaw) -> int:
    """Tokens of an `image_url` part; a bare string is taken for an address."""
    image = read(_image, image_url)
    return IMAGE_TOKENS if image is None else detail_tokens(image.detail)


def detail_tokens(detail: OptionalRaw) -> int:
    """Tokens of an image at this level of `detail`."""
    low = detail is not msgspec.UNSET and bytes(memoryview(detail)[:6]) == b'"low"'
    return IMAGE_LOW_DETAIL_TOKENS if low else IMAGE_TOKENS


def audio_tokens(input_audio: OptionalRaw) -> int:
    """Tokens of an `input_audio` part, from the length of its base64 text."""
    return max(AUDIO_TOKENS_MIN, size_chars(input_audio) // AUDIO_CHARS_PER_TOKEN)


def audio_file_tokens(size_bytes: int) -> int:
    """Tokens of an audio file, from its size."""
    return max(AUDIO_TOKENS_MIN, size_bytes // AUDIO_BYTES_PER_TOKEN)


def document_tokens(data: OptionalRaw) -> int:
    """Tokens of a document, from the length of its base64 text; absent where it is only named."""
    return max(DOCUMENT_TOKENS_MIN, size_chars(data) // DOCUMENT_CHARS_PER_TOKEN)
