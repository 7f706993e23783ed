"""Asking for usage in the caller's place: one member put into a request body, the rest of it byte for byte as it was.

OpenAI's streams tell how many tokens they took only where `stream_options` asks for it. The member goes first, right
after the brace that opens the body: no need to find the end of anything, and one copy is all it costs.
"""

import re

_MEMBER = b'"stream_options":{"include_usage":true}'
# What Python engines let stand before an object: a byte order mark, white space. Possessive, so that it is linear.
_OPENS_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?+[ \t\r\n]*+\{")
_NEXT = re.compile(rb"[ \t\r\n]*+(\})?")


def with_usage_asked(body: bytes) -> bytes | None:
    """The body with `"stream_options":{"include_usage":true}` as its first member; None where it is no JSON object.

    It does not look whether the member is there already: of two of a name, engines take the last.
    """
    opens = _OPENS_OBJECT.match(body)
    if opens is None:
        return None
    at = opens.end()
    following = _NEXT.match(body, at)
    empty = following is not None and following.group(1) is not None
    rest = memoryview(body)
    return b"".join((rest[:at], _MEMBER, b"" if empty else b",", rest[at:]))
