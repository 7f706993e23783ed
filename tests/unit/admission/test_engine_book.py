"""One engine's book: its formulae with figures worked out by hand, and what it learns from an engine at work."""

from math import inf
from random import Random
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.cost import price
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.limits import Limits
from tidegate.admission.reading import EngineReading
from tidegate.admission.step_model import PRIOR
from tidegate.admission.work import Work
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.profiles import PROFILES

from .builders import cost

# t(n, P, kv) = 0.02 + 5e-5 (n + P) + 5e-8 kv, and 2e-9 a token pair: the prior, before anything is learned
FULL_STEP_S = 0.1224  # of 2,048 tokens


def book(**facts: Any) -> EngineBook:
    defaults: dict[str, Any] = {"limits": Limits(batched_tokens=2048, slots=256, kv_tokens=100_000), "now_s": 0.0}
    return EngineBook(**(defaults | facts))


def decoding(sequences: int, *, held_tokens: float = 100.0, **facts: Any) -> EngineBook:
    """So many requests past their first token, just after it."""
    kept = book(**facts)
    for number in range(sequences):
        kept.admit(str(number), cost(prompt_tokens=held_tokens, completion_tokens=50.0, log_mean=4.0), 0.0)
        kept.first_token(str(number), 0.0)
    return kept


def test_an_idle_engine() -> None:
    """It holds nothing, is done with everything, and has the capacity that is stated or assumed."""
    kept = EngineBook(Limits(batched_tokens=2048), now_s=5.0)
    assert (len(kept), kept.sequences, kept.kv_tokens, kept.prefilling, kept.prefill_left_s) == (0, 0, 0.0, False, 0.0)
    assert (kept.slots, kept.slots_each, kept.kv_tokens_max, kept.kv_tokens_each) == (256, 256, 100_000, 100_000)
    assert (kept.share, kept.width, kept.welcome) == (1.0, 1, 0.0)


def test_a_share_is_of_slots_and_tokens() -> None:
    """Whole ones, and at least one: an engine that is up runs something."""
    kept = book(limits=Limits(batched_tokens=2048, slots=10, kv_tokens=1005))
    kept.share = 0.25
    assert (kept.slots, kept.kv_tokens_max) == (2, 251)
    assert (kept.slots_each, kept.kv_tokens_each) == (10, 1005)
    kept.share = 0.0001
    assert (kept.slots, kept.kv_tokens_max) == (1, 1)


def test_several_engines_hold_so_many_times_as_much() -> None:
    """And each has its part of what runs."""
    kept = decoding(8, width=4)
    assert (kept.slots, kept.kv_tokens_max, kept.sequences) == (1024, 400_000, 8)
    assert kept.tpot_s(joining=0, prefill=False) == pytest.approx(0.02 + 5e-5 * 2 + 5e-8 * 200)
    assert kept.tpot_s(joining=4, prefill=False) == pytest.approx(0.02 + 5e-5 * 3 + 5e-8 * 200)


def test_the_time_of_a_step() -> None:
    """With a full chunk beside those that decode, or with none."""
    kept = decoding(48, held_tokens=1000.0)
    assert kept.tpot_s(joining=0, prefill=False) == pytest.approx(0.02 + 5e-5 * 48 + 5e-8 * 48_000)
    assert kept.tpot_s(joining=2, prefill=True) == pytest.approx(0.02 + 5e-5 * 2048 + 5e-8 * 48_000)


def test_time_to_the_first_token() -> None:
    """A small prompt takes a step and a half of its size, one of two chunks two and a half, with attention in both."""
    kept = book()
    assert kept.ttft_s(100.0) == pytest.approx(1.5 * (0.02 + 5e-5 * 100) + 2e-9 * 100**2 / 2)
    assert kept.ttft_s(4096.0) == pytest.approx(2.5 * FULL_STEP_S + 2e-9 * 4096**2 / 2)


def test_time_to_the_first_token_behind_others() -> None:
    """What is in line goes before, and attends to prompts of its own length."""
    kept = book()
    kept.admit("a", cost(prompt_tokens=8192.0), 0.0)
    expected_s = (9216 / 2048 + 0.5) * FULL_STEP_S + 2e-9 * (1024**2 / 2 + 8192 * 8192 / 2)
    assert kept.ttft_s(1024.0) == pytest.approx(expected_s)


def test_the_backlog() -> None:
    """Prompts over the rate at full chunks: 8,192 tokens are four of them; and it shrinks with time, to nothing."""
    kept = book()
    kept.admit("a", cost(prompt_tokens=8192.0), 0.0)
    assert kept.prefilling
    assert kept.prefill_left_s == pytest.approx(4 * FULL_STEP_S)
    kept.advance(0.25)
    assert 0.2 < kept.prefill_left_s < 0.3
    kept.advance(2.0)
    assert (kept.prefilling, kept.prefill_left_s) == (False, 0.0)


def test_what_would_be_needed_all_at_once() -> None:
    """Held, to come, and the request's own prompt and answer; the peak is lower, for short ones end while it grows."""
    kept = book()
    for number in range(10):
        kept.admit(str(number), cost(prompt_tokens=100.0, completion_tokens=10.0), 0.0)
    newcomer = cost(prompt_tokens=50.0, completion_tokens=500.0)
    assert kept.kv_demand_tokens(newcomer) == 10 * 110.0 + 550.0
    assert kept.kv_peak_tokens(newcomer) == 10 * 110.0 + 60.0


def test_the_cost_in_bottleneck_seconds() -> None:
    """The scarcest of compute, KV tokens and slots: as the formula in cost.py, resource by resource."""
    compute_s = FULL_STEP_S + 2e-9 * 2048**2 / 2 + 64 * 0.02 / 32
    assert book().bottleneck_s(2048.0, 64.0, 1, 0.02) == pytest.approx(compute_s)
    kv = book(limits=Limits(batched_tokens=2048, slots=256, kv_tokens=4000))
    assert kv.bottleneck_s(2048.0, 64.0, 1, 0.5) == pytest.approx((2048 + 32) * 64 * 0.5 / 4000)
    assert kv.bottleneck_s(2048.0, 64.0, 4, 0.5) == pytest.approx((2048 + 8) * 64 * 0.5 / 4000)
    slots = book(limits=Limits(batched_tokens=2048, slots=2, kv_tokens=100_000))
    assert slots.bottleneck_s(10.0, 64.0, 1, 0.5) == pytest.approx(64 * 0.5 / 2)


def test_the_price_of_a_request_is_made_with_it() -> None:
    """Never more than one whole engine is booked, so that anything runs when it is alone."""
    kept = book(limits=Limits(batched_tokens=2048, slots=4, kv_tokens=1000))
    made = price(Work(id="w", prompt_tokens=5000, sequences=9), kept, log_mean=5.0, log_sigma=0.9, tau_s=0.05)
    assert (made.sequences, made.kv_tokens, made.prompt_tokens) == (4, 1000, 5000.0)
    assert made.bottleneck_s == kept.bottleneck_s(5000.0, made.completion_tokens, 9, 0.05)


def test_the_pace_of_prompts() -> None:
    """R = (1 - t(n + 1, 0, kv) / (0.85 objective)) / th1, and a quarter of a second of it is saved up."""
    kept = book()
    kept.tpot_target_s = 0.1
    rate = (1 - 0.02005 / 0.085) / 5e-5
    assert kept.prefill_allowance(0.1)[0] == pytest.approx(rate, rel=1e-3)
    assert kept.prefill_allowance(0.1)[1] == 0.0
    kept.advance(0.1)
    assert kept.prefill_allowance(0.1)[1] == pytest.approx(0.1 * rate, rel=1e-3)
    kept.advance(60.0)
    assert kept.prefill_allowance(0.1)[1] == pytest.approx(0.25 * rate, rel=1e-3)


def test_a_prompt_takes_what_was_saved_and_more() -> None:
    """It goes into debt, from which the pace has to get out before the next one."""
    kept = book()
    kept.tpot_target_s = 0.1
    kept.advance(60.0)
    rate, saved_tokens = kept.prefill_allowance(0.1)
    kept.admit("a", cost(prompt_tokens=8000.0), 60.0)
    assert kept.prefill_allowance(0.1)[1] == pytest.approx(saved_tokens - 8000.0)
    kept.release("a", 60.0)
    debt_s = (8000.0 - saved_tokens) / rate
    kept.advance(60.0 + 0.9 * debt_s)
    assert kept.prefill_allowance(0.1)[1] < 0.0
    kept.advance(60.0 + 1.1 * debt_s)
    assert kept.prefill_allowance(0.1)[1] > 0.0


def test_where_nothing_is_paced_the_gate_is_found_open() -> None:
    """Steps of full chunks within 0.85 of the objective, or no objective: no rate, no debt."""
    kept = book()
    kept.tpot_target_s = 0.15  # 0.85 of it is 0.1275: more than a full step
    kept.admit("a", cost(prompt_tokens=1e6), 0.0)
    kept.advance(0.02)
    assert kept.prefill_allowance(0.15) == (inf, 1.0)
    assert kept.prefill_allowance(0.0) == (inf, 1.0)


def test_an_objective_that_decoding_alone_misses() -> None:
    """No rate of prompts would do: less than none is left for them."""
    kept = decoding(200, held_tokens=1000.0)
    assert kept.prefill_allowance(0.03)[0] < 0.0


@pytest.mark.parametrize("batched_tokens", [1, 16])
@pytest.mark.parametrize("target_s", [0.001, 0.02, 0.15])
def test_an_engine_without_room_for_a_chunk(batched_tokens: int, target_s: float) -> None:
    """As many sequences decode as a step has tokens: there is no pace of prompts to keep, and none is a figure too."""
    kept = decoding(20, limits=Limits(batched_tokens=batched_tokens))
    rate, saved_tokens = kept.prefill_allowance(target_s)
    assert rate == rate  # noqa: PLR0124
    assert saved_tokens < inf


def test_the_most_welcome() -> None:
    """First whoever has the least to prefill, then the fewest sequences, then the least KV in use."""
    prefilling, crowded, holding, idle = book(), decoding(20, held_tokens=1.0), book(), book()
    prefilling.admit("a", cost(prompt_tokens=500.0), 0.0)
    holding.adopt("a", sequences=1, kv_tokens=1000, now_s=0.0)
    assert idle.welcome < holding.welcome < crowded.welcome < prefilling.welcome


def test_limits_that_change_keep_what_was_learned() -> None:
    """Only what is stated otherwise starts anew; what runs, runs."""
    kept = decoding(3, limits=Limits(batched_tokens=2048))
    before = kept.model
    for second in range(40):
        kept.advance(float(second))
        kept.read(EngineReading(kv_usage=0.5), float(second))
    learned_tokens = kept.kv_tokens_each
    assert learned_tokens < 90_000
    kept.reconfigure(Limits(batched_tokens=2048, slots=8))
    assert (kept.slots, kept.kv_tokens_each, kept.sequences) == (8, learned_tokens, 3)
    kept.reconfigure(Limits(batched_tokens=2048, slots=8, kv_tokens=5000))
    assert (kept.kv_tokens_each, kept.model) == (5000, before)


def test_what_was_learned_outlives_the_process() -> None:
    """A book made of another's record has its step time; one that is damaged is refused and changes nothing."""
    first, second = book(), book()
    play(first, seconds=30.0, readings=True)
    second.restore(first.dump())
    assert second.model.theta == first.model.theta != PRIOR
    with pytest.raises(ValueError, match="not"):
        second.restore({"steps": {"windows": "many"}})
    assert second.model.theta == first.model.theta


PROFILE = PROFILES["llama-70b-4xh100"]


def play(kept: EngineBook, *, seconds: float, slower: float = 1.0, readings: bool = False) -> list[float]:
    """An engine at 7 small prompts a second, beside the book that is told of it: how late first tokens were found to
    come after they were reckoned, of the last third of the time.
    """
    engine, random, late_s = EngineModel(PROFILE.slowed(slower)), Random(3), list[float]()
    truth: dict[str, tuple[float, int]] = {}
    first_s: dict[str, float] = {}
    now_s, arrives_s, reads_s, number = 0.0, 0.0, 1.0, 0
    while now_s < seconds:
        step_s = engine.next_step_at_s() or inf
        now_s = min(step_s, arrives_s, reads_s)
        for event in engine.advance(now_s):
            first_s |= dict.fromkeys(event.first_tokens, event.end_s)
            for work_id in event.finished:
                sent_s, tokens = truth[work_id]
                row = kept.release(work_id, now_s)
                assert row is not None
                if now_s > seconds * 2 / 3:
                    late_s.append(first_s[work_id] - (now_s if row.first_s is None else row.first_s))
                ttft_s = first_s[work_id] - sent_s
                kept.learn(row, tokens=float(tokens), ttft_s=ttft_s, e2e_s=now_s - sent_s, now_s=now_s)
        if now_s == reads_s:
            reads_s += 1.0
            if readings:
                kept.read(reading_of(engine), now_s)
        if now_s == arrives_s:
            work_id, prompt_tokens, tokens = str(number), random.randint(50, 800), random.randint(20, 120)
            truth[work_id] = (now_s, tokens)
            price_ = cost(prompt_tokens=float(prompt_tokens), completion_tokens=70.0, log_mean=4.2)
            kept.admit(work_id, price_, now_s)
            engine.submit(work_id, prompt_tokens, tokens, now_s)
            arrives_s, number = now_s + random.expovariate(7.0), number + 1
    return late_s


def reading_of(engine: EngineModel) -> EngineReading:
    counters = engine.counters
    return EngineReading(
        running=engine.running,
        waiting=engine.waiting,
        kv_usage=engine.kv_usage,
        steps_total=float(counters.steps),
        tokens_total=float(counters.prompt_tokens + counters.completion_tokens),
    )


@pytest.mark.parametrize("readings", [True, False])
@pytest.mark.parametrize("slower", [0.5, 1.0, 2.0])
def test_the_step_time_is_learned_from_an_engine_at_work(slower: float, readings: bool) -> None:
    """From its counters, or from outcomes alone: after two minutes steps are known to a fifth, whether they take half
    or twice as long, and first tokens come within 0.1 s of when they were reckoned, on average.
    """
    kept = EngineBook(Limits(batched_tokens=PROFILE.batched_tokens), now_s=0.0)
    late_s = play(kept, seconds=120.0, slower=slower, readings=readings)
    cost_ = PROFILE.cost.scaled(slower)
    for sequences, chunk, kv_tokens in [(20, 0, 6000), (20, 500, 6000)]:
        true_s = cost_.seconds(sequences + chunk, kv_tokens, 0.0)
        assert kept.model.step_s(sequences, chunk, kv_tokens) == pytest.approx(true_s, rel=0.2)
    assert len(late_s) > 200
    assert mean(map(abs, late_s)) < 0.1


def test_the_kv_capacity_is_learned_from_usage() -> None:
    """An engine that says half of its cache is used, while the book counts 10,000 tokens in it, holds 20,000."""
    kept = book(limits=Limits(batched_tokens=2048))
    kept.adopt("a", sequences=1, kv_tokens=10_000, now_s=0.0)
    for second in range(100):
        kept.read(EngineReading(kv_usage=0.5), float(second))
    assert kept.kv_tokens_each == pytest.approx(20_000, rel=0.05)


def test_a_reading_of_nonsense_changes_no_capacity() -> None:
    """What is no share of a cache, no number of sequences."""
    kept = decoding(2, limits=Limits(batched_tokens=2048))
    for usage in (float("nan"), inf, -1.0, 7.0):
        kept.read(EngineReading(kv_usage=usage, running=-5, waiting=-5), 1.0)
    assert (kept.kv_tokens_each, kept.slots_each) == (100_000, 256)


@given(st.floats(0.0, 1e5), st.floats(0.0, 1e5), st.integers(0, 60), st.floats(0.0, 1e5))
def test_more_of_anything_takes_longer(prompt_tokens: float, more_tokens: float, running: int, left: float) -> None:
    """Time to the first token and cost rise with the prompt, and the former with what runs and what is in line."""
    idle, loaded = book(), decoding(running)
    loaded.admit("line", cost(prompt_tokens=left), 0.0)
    assert idle.ttft_s(prompt_tokens) <= idle.ttft_s(prompt_tokens + more_tokens) * (1 + 1e-9)
    assert idle.ttft_s(prompt_tokens) <= loaded.ttft_s(prompt_tokens) * (1 + 1e-9)
    few_s, many_s = (idle.bottleneck_s(prompt_tokens + more, 50.0, 1, 0.05) for more in (0.0, more_tokens))
    assert few_s <= many_s * (1 + 1e-9)
