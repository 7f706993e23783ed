"""What the simulated engine reads from bodies, and the lengths it gives to them."""

import json
from math import exp, log
from statistics import median, quantiles
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sim.lengths import FinishReason, Length, bounded, drawn_tokens
from tidegate.sim.openai_request import MEDIA_TOKENS, SEQUENCES_MAX, Api, ApiError, GenerationRequest, parse
from tidegate.sim.profiles import PROFILES

DEMO = PROFILES["demo"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("messages", "prompt", "n", "max_tokens", "min_tokens", "stream", "stream_options", "metadata", "tools")


def chat(**fields: Any) -> GenerationRequest:
    return parse(Api.CHAT, json.dumps({"messages": [{"role": "user", "content": "tide"}], **fields}).encode())


@given(st.sampled_from(Api), st.binary(max_size=64) | st.dictionaries(st.sampled_from(FIELDS), JSON).map(json.dumps))
def test_any_body_is_read_or_refused(api: Api, body: bytes | str) -> None:
    """Whatever the bytes, the outcome is a request that fits the bounds or an ApiError."""
    try:
        choices = parse(api, body if isinstance(body, bytes) else body.encode()).choices(DEMO, seed=0)
    except ApiError:
        return
    assert 1 <= len(choices) <= SEQUENCES_MAX
    for prompt, length in choices:
        assert prompt.tokens >= 1
        assert length.tokens >= 1
        assert prompt.tokens + length.tokens <= DEMO.context_tokens


def test_deep_nesting_is_refused() -> None:
    """Brackets without end are a client's error, never a crash."""
    for depth in (200, 5_000, 500_000):
        with pytest.raises(ApiError):
            parse(Api.COMPLETIONS, b'{"prompt": ' + b"[" * depth + b"]" * depth + b"}")


def test_prompt_tokens() -> None:
    """Four characters are a token, rounded up; a part without text counts as an image; tools count as they are sent."""
    assert chat().prompt_tokens == 1
    assert chat(messages=[]).prompt_tokens == 1
    assert chat(messages=[{"role": "user", "content": "a" * 401}]).prompt_tokens == 101
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    assert parse(Api.CHAT, json.dumps({"messages": [image]}).encode()).prompt_tokens == MEDIA_TOKENS
    assert chat(tools=None).prompt_tokens == 1
    assert chat(tools=[{"type": "function"}]).prompt_tokens == 7
    assert parse(Api.COMPLETIONS, b'{"prompt": [[1, 2, 3], "abcde"]}').prompt_tokens == 5


def test_lengths_follow_the_callers_bounds() -> None:
    """min_tokens stretches, max_tokens cuts and says so, ignore_eos goes on to the cap."""
    assert bounded(10, min_tokens=0, max_tokens=20, ignore_eos=False) == Length(10, FinishReason.STOP)
    assert bounded(10, min_tokens=15, max_tokens=20, ignore_eos=False) == Length(15, FinishReason.STOP)
    assert bounded(10, min_tokens=0, max_tokens=5, ignore_eos=False) == Length(5, FinishReason.LENGTH)
    assert bounded(10, min_tokens=20, max_tokens=20, ignore_eos=False) == Length(20, FinishReason.LENGTH)
    assert bounded(10, min_tokens=0, max_tokens=20, ignore_eos=True) == Length(20, FinishReason.LENGTH)


def test_length_depends_on_content_only() -> None:
    """Neither the cap nor sampling settings change the natural length; the content, the choice and the seed do."""

    def natural(request: GenerationRequest, seed: int = 0) -> list[int]:
        return [length.tokens for _, length in request.choices(DEMO, seed=seed)]

    assert natural(chat()) == natural(chat(max_tokens=4000, temperature=0.3, stream=True))
    first, second = natural(chat(n=2))
    assert [first] == natural(chat())
    assert first != second
    assert natural(chat(), seed=1) != natural(chat())


def test_drawn_lengths_are_log_normal() -> None:
    """Over many contents the lengths have the profile's median and spread."""
    draws = [drawn_tokens(str(index).encode(), seed=7, index=0, log_mean=5.0, log_sigma=0.9) for index in range(4000)]
    low, high = quantiles(draws, n=100)[15], quantiles(draws, n=100)[83]
    assert median(draws) == pytest.approx(exp(5.0), rel=0.06)
    assert log(high / low) / 2.0 == pytest.approx(0.9, rel=0.06)
