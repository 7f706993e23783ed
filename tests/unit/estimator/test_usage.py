"""Tokens of answers whose engine does not count them, from their bytes."""

import json
import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_estimator.usage import KINDS_MAX, KINDS_SAVED, REPORTS_KEPT, AnswerKind, UsageRatios

CAPTURES = Path(__file__).parents[2] / "data" / "engines"
KIND = AnswerKind("tiny", True, "openai_chat")
WORDS = (" the", " of", " sea", "ing", " traceback", " implementation", "\n", '"', "é", "1", ",", "  ", "好", "🙂")
_CONTENT = re.compile(rb'"(content|text)":"[^"]*"')
STREAMS = (
    "vllm-chat-stream-usage.sse",
    "vllm-chat-stream-continuous.sse",
    "llamacpp-chat-stream.sse",
    "vllm-completions-stream.sse",
)


class Captured:
    """A captured stream, spun out to any length with events of its own kind and varying text."""

    def __init__(self, name: str, random: Random) -> None:
        events = [event + b"\n\n" for event in (CAPTURES / name).read_bytes().split(b"\n\n") if event.strip()]
        self._random = random
        self._done = events.pop()
        self._usage = events.pop()
        assert b'"choices":[]' in self._usage
        self._opening = [events.pop(0)] if b'"role":"assistant"' in events[0] else []
        self._piece, self._last = events[0], events[-1]

    def size(self, tokens: int, *, usage: bool) -> int:
        """Bytes of an answer of so many tokens."""
        empty_last = b'"delta":{}' in self._last  # llama.cpp ends with an event that carries no token
        pieces = [self._worded() for _ in range(tokens - (not empty_last))]
        parts = [*self._opening, *pieces, self._last, *([self._usage] if usage else []), self._done]
        return len(b"".join(parts))

    def _worded(self) -> bytes:
        word = json.dumps(self._random.choice(WORDS), ensure_ascii=False).encode()
        return _CONTENT.sub(lambda found: b'"' + found.group(1) + b'":' + word, self._piece, count=1)


def lengths(random: Random, spread: str) -> int:
    return {
        "wide": lambda: max(1, int(random.lognormvariate(5.0, 0.9))),
        "short": lambda: random.randint(2, 12),
        "alike": lambda: random.randint(48, 52),
    }[spread]()


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("spread", ["wide", "short", "alike"])
def test_streams_of_real_engines_are_counted_within_a_tenth(name: str, spread: str) -> None:
    """From 10 tokens to 2000, whatever lengths were reported before; shorter ones within one token."""
    random = Random(7)
    captured, ratios = Captured(name, random), UsageRatios()
    for _ in range(REPORTS_KEPT):
        tokens = lengths(random, spread)
        ratios.learn(KIND, captured.size(tokens, usage=True), tokens)
    for tokens in (1, 2, 3, 5, 10, 20, 50, 150, 500, 2000):
        inferred = ratios.infer(KIND, captured.size(tokens, usage=False))
        assert inferred is not None
        assert abs(inferred - tokens) <= max(1.0, 0.1 * tokens), tokens


def test_callers_with_other_events_do_not_bend_the_line() -> None:
    """One answer in four with logprobs, four times as large, leaves the others within a tenth."""
    random = Random(7)
    captured, ratios = Captured(STREAMS[0], random), UsageRatios()
    for number in range(REPORTS_KEPT):
        tokens = lengths(random, "wide")
        ratios.learn(KIND, captured.size(tokens, usage=True) * (4 if number % 4 == 0 else 1), tokens)
    for tokens in (10, 100, 1000):
        assert ratios.infer(KIND, captured.size(tokens, usage=False)) == pytest.approx(tokens, rel=0.1)


def test_bytes_that_do_not_tell_infer_nothing() -> None:
    """Whole answers are all text, whose tokens have any number of bytes: better no count than a wrong one."""
    random, ratios = Random(7), UsageRatios()
    whole = KIND._replace(stream=False)
    for _ in range(REPORTS_KEPT):
        tokens = lengths(random, "wide")
        ratios.learn(whole, 500 + round(tokens * random.uniform(1.5, 6.0)), tokens)
    assert ratios.infer(whole, 2000) is None
    assert ratios.inferred_total == 0


def test_a_new_version_of_the_engine_is_followed() -> None:
    """Once all that is remembered has the new size of events, the old one is forgotten."""
    ratios = UsageRatios()
    for token_bytes in (200, 300):
        for tokens in range(20, 20 + REPORTS_KEPT):
            ratios.learn(KIND, 530 + token_bytes * tokens, tokens)
        assert ratios.infer(KIND, 240 + token_bytes * 100) == pytest.approx(100, rel=0.02)


def test_fewer_than_eight_reports_say_nothing() -> None:
    """Before, and for any other model, API or way of answering, nothing is inferred."""
    ratios = UsageRatios()
    for number in range(8):
        assert ratios.infer(KIND, 5000) is None
        ratios.learn(KIND, 530 + 200 * (number + 1), number + 1)
    assert ratios.infer(KIND, 240 + 200 * 20) == 20
    for other in (KIND._replace(model="big"), KIND._replace(stream=False), KIND._replace(api="openai_completions")):
        assert ratios.infer(other, 5000) is None
    assert ratios.inferred_total == 1


def test_the_number_of_kinds_is_bounded() -> None:
    """The kind used longest ago makes room; what is saved is the newest 64."""
    ratios = UsageRatios()
    for model in range(KINDS_MAX + 1):
        for _ in range(8):
            ratios.learn(KIND._replace(model=str(model)), 2000, 7)
    assert len(ratios) == KINDS_MAX
    assert ratios.infer(KIND._replace(model="0"), 2000) is None
    saved = ratios.dump()
    assert len(saved) == KINDS_SAVED
    later = UsageRatios()
    later.restore(saved)
    newest = KIND._replace(model=str(KINDS_MAX))
    assert later.infer(newest, 4000) == ratios.infer(newest, 4000) is not None


@given(
    reports=st.lists(st.tuples(st.integers(-5, 10**20), st.integers(-5, 10**20)), min_size=8, max_size=40),
    size=st.integers(-5, 10**20),
)
def test_any_figures_give_a_count_in_range(reports: list[tuple[int, int]], size: int) -> None:
    """It never raises, and what it infers is a number of tokens."""
    ratios = UsageRatios()
    for response_bytes, tokens in reports:
        ratios.learn(KIND, response_bytes, tokens)
    inferred = ratios.infer(KIND, size)
    assert inferred is None or 1 <= inferred <= 100_000_000


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=8, max_size=32))
def test_any_plausible_figures_give_a_count(reports: list[tuple[int, int]]) -> None:
    """Tokens that have nothing to do with bytes still give a count, or none."""
    ratios = UsageRatios()
    for tokens, more_bytes in reports:
        ratios.learn(KIND, tokens + more_bytes, tokens)
    inferred = ratios.infer(KIND, 5000)
    assert inferred is None or inferred >= 1
