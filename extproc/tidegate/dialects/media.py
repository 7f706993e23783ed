"""Prompt tokens of images and audio, by rule: what the request says is all we have, nothing is decoded.

image_url: 85 tokens where `detail` is low, else 765 (one 85-token overview and four 170-token tiles: a 1024 x 1024
picture as OpenAI's tiling prices it; open models lie between 256 and 2,880).
input_audio: 1 token per 3,200 base64 characters: 2,400 bytes, 75 ms of 16-bit mono PCM at 16 kHz, about 13 tokens a
second. For compressed audio this is low, so at least 25 tokens a part.
"""

import msgspec

from tidegate.dialects.lax import OptionalRaw, read, size_chars

IMAGE_TOKENS = 765
IMAGE_LOW_DETAIL_TOKENS = 85
AUDIO_TOKENS_MIN = 25
AUDIO_CHARS_PER_TOKEN = 3200


class _Image(msgspec.Struct):
    detail: msgspec.Raw = msgspec.Raw()


_image = msgspec.json.Decoder(_Image)


def image_tokens(image_url: OptionalRaw) -> int:
    """Tokens of an `image_url` part; a bare string is taken for an address."""
    image = read(_image, image_url)
    return IMAGE_LOW_DETAIL_TOKENS if image is not None and bytes(image.detail) == b'"low"' else IMAGE_TOKENS


def audio_tokens(input_audio: OptionalRaw) -> int:
    """Tokens of an `input_audio` part, from the length of its base64 text."""
    return max(AUDIO_TOKENS_MIN, size_chars(input_audio) // AUDIO_CHARS_PER_TOKEN)
