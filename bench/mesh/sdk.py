"""What an SDK does with an answer: openai-python's retry rule, as seen on version 3.57.

    retried       x-should-retry: true | false, else 408, 409, 429, 5xx, or no answer at all; twice at most
    named delay   retry-after-ms, else Retry-After (seconds or a date): taken exactly where 0 < d <= 120 s,
                  above it the call fails at once, otherwise as if none were named
    own delay     min(0.5 s x 2^n, 8 s) x U(0.75, 1),   n the tries that failed before this one

One second of life may take less on a bench, so the SDK's own delays are scaled. A named delay is not: it was given in
the seconds of the server's clock.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from random import Random

RETRIES_MAX = 2
NAMED_S_MAX = 120.0
_FIRST_S, _CAP_S, _JITTER = 0.5, 8.0, 0.25
_RETRIED = frozenset({408, 409, 429})


def retry_delay_s(
    status: int, headers: Mapping[str, str], *, tries_failed: int, now_s: float, random: Random, time_scale: float = 1.0
) -> float | None:
    """Seconds until the next try of a call whose latest try ended so; None where there is none.

    Args:
        status: of the answer; 0 where none came: a connection that failed, or a timeout before the headers.
        headers: of the answer, names in lower case (or a mapping that ignores case).
        tries_failed: how many tries there were, this one included; at least 1.
        now_s: Unix time, for a Retry-After that is a date.
        time_scale: real seconds of one second of the SDK's life.
    """
    if tries_failed > RETRIES_MAX or not _retried(status, headers):
        return None
    named_s = _named_s(headers, now_s)
    if named_s is not None and named_s > NAMED_S_MAX:
        return None
    if named_s is not None and named_s > 0.0:
        return named_s
    own_s = min(_FIRST_S * 2.0 ** (tries_failed - 1), _CAP_S) * (1.0 - _JITTER * random.random())
    return own_s * time_scale


def _retried(status: int, headers: Mapping[str, str]) -> bool:
    asked = headers.get("x-should-retry")
    if asked in ("true", "false"):
        return asked == "true"
    return status == 0 or status in _RETRIED or status >= 500


def _named_s(headers: Mapping[str, str], now_s: float) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        return parsedate_to_datetime(text).timestamp() - now_s
    except ValueError:
        return None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
