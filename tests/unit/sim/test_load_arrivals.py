"""The arrivals of a run: reproducible, at the stated rate, with the stated lengths."""

import pytest

from tidegate.sim.arrivals import ARRIVALS_MAX, Lengths, TenantLoad, arrivals_of
from tidegate.sim.sse_tally import LINE_BYTES_MAX, SseTally

PROMPT = Lengths(median=200, sigma=0.8, low=16, high=2000)
ANSWER = Lengths(median=60, sigma=0.6, low=8, high=300)


def tenant(name: str, rate_per_s: float, **changes: float) -> TenantLoad:
    return TenantLoad(name=name, rate_per_s=rate_per_s, prompt_tokens=PROMPT, completion_tokens=ANSWER, **changes)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    """Two sides of a comparison meet the very same requests."""
    loads = (tenant("a", 20.0), tenant("b", 5.0))
    assert arrivals_of(loads, duration_s=10.0, seed=7) == arrivals_of(loads, duration_s=10.0, seed=7)
    assert arrivals_of(loads, duration_s=10.0, seed=7) != arrivals_of(loads, duration_s=10.0, seed=8)


def test_another_tenant_changes_nothing_for_the_first() -> None:
    """A flooding tenant must not alter what the quiet one asks for."""
    alone = arrivals_of((tenant("quiet", 5.0),), duration_s=20.0, seed=1)
    flooded = arrivals_of((tenant("quiet", 5.0), tenant("flood", 50.0)), duration_s=20.0, seed=1)
    assert tuple(arrival for arrival in flooded if arrival.tenant == "quiet") == alone


def test_arrivals_are_in_order_and_at_the_rate() -> None:
    """Poisson arrivals: the count lies within five standard deviations of rate x time."""
    arrivals = arrivals_of((tenant("a", 40.0),), duration_s=50.0, seed=3)
    moments = [arrival.at_s for arrival in arrivals]
    assert moments == sorted(moments)
    assert 0.0 < moments[0] < moments[-1] < 50.0
    assert abs(len(arrivals) - 2000) < 5 * 2000**0.5


def test_a_tenant_sends_only_in_its_time() -> None:
    """A burst has a beginning and an end."""
    burst = tenant("burst", 100.0, start_s=2.0, end_s=3.0)
    assert all(2.0 <= arrival.at_s < 3.0 for arrival in arrivals_of((burst,), duration_s=10.0, seed=0))


def test_a_silent_tenant_sends_nothing() -> None:
    """A rate of zero is allowed and means silence."""
    assert arrivals_of((tenant("mute", 0.0),), duration_s=10.0, seed=0) == ()


def test_absurd_rates_are_refused() -> None:
    """A run is bounded: a mistyped rate is an error, not an hour of memory filling."""
    with pytest.raises(ValueError, match="arrivals"):
        arrivals_of((tenant("a", ARRIVALS_MAX),), duration_s=10.0, seed=0)


def test_lengths_keep_their_bounds_and_their_mean() -> None:
    """Drawn lengths lie within the bounds, and the stated mean is theirs."""
    arrivals = arrivals_of((tenant("a", 200.0),), duration_s=50.0, seed=5)
    lengths = [arrival.completion_tokens for arrival in arrivals]
    assert min(lengths) >= ANSWER.low
    assert max(lengths) <= ANSWER.high
    assert sum(lengths) / len(lengths) == pytest.approx(ANSWER.mean, rel=0.03)
    assert {arrival.completion_tokens_max for arrival in arrivals} == {ANSWER.high}


def test_fixed_lengths_have_their_own_mean() -> None:
    """Sigma zero is a constant, clipped like any other."""
    assert Lengths(median=50, sigma=0.0, low=1, high=40).mean == 40


STREAM = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n'
    b": keep-alive\n\n"
    b'data: {"choices":[{"delta":{"content": "\\"content\\": \\"x"}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)


@pytest.mark.parametrize("step", [1, 7, 64, len(STREAM)])
def test_the_tally_counts_content_however_the_stream_is_cut(step: int) -> None:
    """Only events with content count, each once, wherever the network cuts the bytes."""
    tally = SseTally()
    fresh = [tally.feed(STREAM[at : at + step]) for at in range(0, len(STREAM), step)]
    assert sum(fresh) == tally.tokens == 2
    assert tally.usage_tokens == 2
    assert tally.done
    assert not tally.failed


def test_an_error_event_fails_the_stream() -> None:
    """A 200 that carries an error event is a failure."""
    tally = SseTally()
    tally.feed(b'data: {"error": {"message": "queue is full", "code": 503}}\n\ndata: [DONE]\n\n')
    assert tally.failed


def test_an_endless_line_fails_the_stream_and_is_not_kept() -> None:
    """Memory stays bounded when the other side sends no line end."""
    tally = SseTally()
    tally.feed(b"x" * (LINE_BYTES_MAX + 1))
    assert tally.failed
    assert tally.feed(b"data: [DONE]\n\n") == 0
