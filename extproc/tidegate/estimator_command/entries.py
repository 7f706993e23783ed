"""Envoy's access log as JSON, written with this format:

    json_format:
      time: "%START_TIME%"
      status: "%RESPONSE_CODE%"
      flags: "%RESPONSE_FLAGS%"
      admission: "%DYNAMIC_METADATA(admission)%"
      usage: "%DYNAMIC_METADATA(usage)%"

`admission` holds the request's id and its sealed ticket, `usage` what the engine counted. The ticket opens under the
key that the service seals with, and teaches what the service itself would have learned. There are no prompts in it.
"""

import msgspec

from tidegate.estimator_command.faults import UnusableLine
from tidegate.seal import Seal
from tidegate_estimator.training import Ticketed

_CLIENT_LEFT = frozenset(("DC", "DR"))


class _Admission(msgspec.Struct):
    id: str = ""
    ticket: str = ""


class _Usage(msgspec.Struct):
    completion_tokens: float | None = None
    prompt_tokens: float | None = None
    stream_error: str | None = None


class _Entry(msgspec.Struct):
    admission: _Admission
    usage: _Usage | None = None
    status: int | None = None
    flags: str | None = None


_decoder = msgspec.json.Decoder(_Entry)


def read_entry(line: bytes, *, seal: Seal | None) -> Ticketed:
    """What one entry teaches.

    Raises:
        UnusableLine: there is no key, the ticket does not open, or the entry has no answer in it.
        msgspec.MsgspecError: it has another shape.
    """
    entry = _decoder.decode(line)
    usage = entry.usage or _Usage()
    if seal is None:
        raise UnusableLine("a sealed ticket: --key-file must name the key that the service seals with")
    if not entry.admission.ticket:
        raise UnusableLine("no ticket: the request was refused, or booked at a default cost")
    ticket = seal.open(entry.admission.ticket, entry.admission.id)
    if ticket is None:
        raise UnusableLine("its ticket was not sealed under the key of --key-file for this id")
    if usage.completion_tokens is None:
        raise UnusableLine("no usage.completion_tokens: the engine did not say how long the answer was")
    if entry.status is not None and entry.status != 200:
        raise UnusableLine(f"status {entry.status}: no answer to learn from")
    if usage.stream_error is not None:
        raise UnusableLine("the engine failed in the middle of the stream")
    left = not _CLIENT_LEFT.isdisjoint((entry.flags or "").split(","))
    return Ticketed(
        ticket,
        _count(usage.completion_tokens),
        "abort" if left else "",
        None if usage.prompt_tokens is None else _count(usage.prompt_tokens),
    )


def _count(figure: float) -> int:
    """A whole number of tokens; Envoy's metadata knows only doubles."""
    if not 0 <= figure <= 2**31:
        raise UnusableLine(f"{figure} is no number of tokens")
    return int(figure)
