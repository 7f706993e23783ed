"""Just enough HTTP/1.1 to tell where one message with a content-length ends; both ends of the benchmark use it."""

HEAD_BYTES_MAX = 16_384
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length:"


class MessageError(Exception):
    """The bytes are no message of the kind that is exchanged here."""


class MessageReader:
    """Splits the bytes of a connection into messages."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes; the start line of each message that is complete now."""
        buffer = self._buffer + data if self._buffer else data
        start_lines = []
        while (size := message_size(buffer)) is not None and size <= len(buffer):
            start_lines.append(buffer[: buffer.index(b"\r\n")])
            buffer = buffer[size:]
        self._buffer = buffer
        return start_lines


def message_size(buffer: bytes) -> int | None:
    """Bytes of the message that the buffer begins with, or None where its head is not complete.

    Raises:
        MessageError: the head is too large, or names a body without a length.
    """
    head_end = buffer.find(_END_OF_HEAD)
    if head_end < 0:
        if len(buffer) > HEAD_BYTES_MAX:
            raise MessageError("the head of a message is too large")
        return None
    head = buffer[:head_end].lower()
    if b"transfer-encoding:" in head:
        raise MessageError("a chunked message: its end is not looked for here")
    at = head.find(_LENGTH)
    length = 0 if at < 0 else int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
    return head_end + len(_END_OF_HEAD) + length
