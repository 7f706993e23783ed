"""One JSON line to the answers in it, whichever of the known formats it has.

    answered request   an OpenAI body with the answer's figures beside it: {"messages" or "prompt", "model", ...,
                       "tenant"?, "completion_tokens", "finish_reason"?, "prompt_tokens"?, "time"?}
    corpus record      {"kind": "prompt" or "conv", ...}: see corpus.py
    access-log entry   {"admission": {...}, "usage": {...}, ...}: see entries.py

`time` is seconds, or ISO 8601.
"""

from dataclasses import dataclass
from datetime import datetime
from math import isfinite

import msgspec

from tidegate.dialects import Dialect, dialect_for
from tidegate.dialects.lax import OptionalRaw
from tidegate.errors import MalformedBody
from tidegate.estimator_command.corpus import read_record
from tidegate.estimator_command.entries import read_entry
from tidegate.estimator_command.faults import UnusableLine
from tidegate.seal import Seal
from tidegate_estimator.training import Answered, Ticketed

_ENDINGS = {"stop": "stop", "tool_calls": "stop", "function_call": "stop", "length": "length", "abort": "abort"}
_TOKENS_MAX = 100_000_000


class _Probe(msgspec.Struct):
    """What tells the formats apart, and what all of them share."""

    kind: str | None = None
    event: str | None = None
    admission: OptionalRaw = msgspec.UNSET
    messages: OptionalRaw = msgspec.UNSET
    prompt: OptionalRaw = msgspec.UNSET
    tenant: str | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    time: float | str | None = None


_decoder = msgspec.json.Decoder(_Probe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One line's answers, and when they were given: seconds since the Unix epoch, or None where it does not say."""

    rows: list[Answered | Ticketed]
    time_s: float | None


def read_line(line: bytes, *, answers_max: int, seal: Seal | None) -> Reading:
    """The answers of one line.

    Raises:
        UnusableLine: and nothing else, whatever the bytes.
    """
    try:
        probe = _decoder.decode(line)
        rows = _rows(probe, line, answers_max, seal)
    except (msgspec.MsgspecError, MalformedBody, UnicodeDecodeError, RecursionError) as error:
        raise UnusableLine(str(error)) from None
    rows = [row for row in rows if 0 < row.completion_tokens <= _TOKENS_MAX]  # an empty answer tells nothing
    if not rows:
        raise UnusableLine("no answer of at least one token in it")
    return Reading(rows=rows, time_s=_seconds(probe.time))


def _rows(probe: _Probe, line: bytes, answers_max: int, seal: Seal | None) -> list[Answered | Ticketed]:
    if probe.kind in ("prompt", "conv"):
        return [*read_record(line, answers_max=answers_max)]
    if probe.admission is not msgspec.UNSET:
        return [read_entry(line, seal=seal)]
    if probe.messages is not msgspec.UNSET or probe.prompt is not msgspec.UNSET:
        return [_answered(probe, line)]
    if probe.event == "request":
        raise UnusableLine(
            "a line of Tidegate's request log: it holds lengths, but neither the request nor its ticket; "
            "use Envoy's access log as JSON, with admission and usage in it, and --key-file"
        )
    raise UnusableLine("neither a request with messages or prompt, nor a corpus record, nor an access-log entry")


def _answered(probe: _Probe, line: bytes) -> Answered:
    if probe.completion_tokens is None:
        raise UnusableLine("no completion_tokens: how long was the answer?")
    chat = probe.messages is not msgspec.UNSET
    dialect: Dialect | None = dialect_for("POST", "/v1/chat/completions" if chat else "/v1/completions")
    assert dialect is not None, "both are served"
    request = dialect.parse_request(line, tenant=probe.tenant or "").completion
    ending = _ENDINGS.get(probe.finish_reason or "", "")
    return Answered(request, probe.completion_tokens, ending, probe.prompt_tokens)


def _seconds(time: float | str | None) -> float | None:
    if time is None or isinstance(time, float):
        return time if time is not None and isfinite(time) else None
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UnusableLine(f"time {time[:40]!r} is neither seconds nor ISO 8601") from None
