"""The reckoning of an engine against the engine itself, and that nothing in it is lost whatever it is told."""

from dataclasses import dataclass, field, replace
from functools import cache
from math import exp, inf, nan
from random import Random
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tidegate.admission.reading import EngineReading
from tidegate.admission.reckoning import Reckoning, Row
from tidegate.admission.step_model import StepModel, Window
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.profiles import EngineProfile, StepCost

from .builders import cost

COST = StepCost(base_s=0.015, floor_s=0.0, token_s=6e-5, kv_token_s=4e-8, attention_s=2e-9)
PROFILE = EngineProfile(
    name="linear",
    cost=COST,
    kv_tokens=400_000,
    slots=256,
    batched_tokens=1024,
    context_tokens=32_000,
    tpot_target_s=0.15,
)


@cache
def taught() -> StepModel:
    """A model that has seen such an engine at work for three minutes; nobody here changes it."""
    model, random = StepModel(), Random(1)
    for _ in range(200):
        steps, decoding, chunk = random.randint(20, 60), random.uniform(1, 200), random.uniform(0, 900)
        tokens, kv_steps = (decoding + chunk) * steps, random.uniform(1e3, 3e5) * steps
        attention = random.uniform(0, 2000) * chunk * steps
        seconds = (
            COST.base_s * steps + COST.token_s * tokens + COST.kv_token_s * kv_steps + COST.attention_s * attention
        )
        window = Window(seconds=seconds, steps=steps, tokens=tokens, kv_token_steps=kv_steps, attention=attention)
        assert model.learn(window, 120.0)
    return model


@dataclass
class Errors:
    """Of each answer when it ends: how late its first token came, as reckoned, and tokens reckoned too many."""

    late_s: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)


class SideBySide:
    """Engines and their reckoning, given the same requests, round robin."""

    def __init__(self, *, engines: int = 1, slower: float = 1.0) -> None:
        profile = replace(PROFILE, cost=COST.scaled(slower))
        self.engines = [EngineModel(profile) for _ in range(engines)]
        self.reckoning = Reckoning(batched_tokens=profile.batched_tokens, width=engines, now_s=0.0, model=taught())
        self.errors = Errors()
        self.true_tokens: dict[str, int] = {}
        self.first_s: dict[str, float] = {}

    def play(
        self, *, rate_per_s: float, requests: int, log_mean: float, readings: bool = False, outcomes: bool = False
    ) -> Errors:
        """Poisson arrivals of prompts of 50 to 3,000 tokens, until the last one has come."""
        random, now_s, next_reading_s = Random(7), 0.0, 1.0
        for number in range(requests):
            now_s += random.expovariate(rate_per_s)
            while readings and next_reading_s <= now_s:
                self.advance(next_reading_s, outcomes=outcomes)
                self.reckoning.advance(next_reading_s)
                self.reckoning.count(self.reading())
                next_reading_s += 1.0
            self.advance(now_s, outcomes=outcomes)
            work_id, prompt_tokens = str(number), random.randint(50, 3000)
            tokens = self.true_tokens[work_id] = max(2, int(random.lognormvariate(log_mean, 0.6)))
            price = cost(prompt_tokens=float(prompt_tokens), completion_tokens=float(tokens), log_mean=log_mean)
            self.reckoning.admit(work_id, structs.replace(price, estimate=(float(number), 0.6)), now_s)
            self.engines[number % len(self.engines)].submit(work_id, prompt_tokens, tokens, now_s)
        return self.errors

    def advance(self, now_s: float, *, outcomes: bool) -> None:
        while (at_s := min(engine.next_step_at_s() or inf for engine in self.engines)) <= now_s:
            for engine in self.engines:
                for event in engine.advance(at_s):
                    self.first_s |= dict.fromkeys(event.first_tokens, event.end_s)
                    for work_id in event.finished:
                        self.finish(work_id, event.end_s, outcomes=outcomes)

    def finish(self, work_id: str, now_s: float, *, outcomes: bool) -> None:
        self.reckoning.advance(now_s)
        names, _, generated = self.reckoning.estimates()
        self.errors.tokens.append(float(generated[names == float(work_id)][0]) - self.true_tokens[work_id])
        row = self.reckoning.release(work_id, now_s)
        assert row is not None
        self.errors.late_s.append(self.first_s[work_id] - (now_s if row.first_s is None else row.first_s))
        if outcomes:
            self.reckoning.correct_frontier(row, self.first_s[work_id])

    def reading(self) -> EngineReading:
        counters = [engine.counters for engine in self.engines]
        return EngineReading(
            running=sum(engine.running for engine in self.engines),
            waiting=sum(engine.waiting for engine in self.engines),
            steps_total=float(sum(each.steps for each in counters)),
            tokens_total=float(sum(each.prompt_tokens + each.completion_tokens for each in counters)),
        )


def mean_abs(values: list[float]) -> float:
    return mean(abs(value) for value in values)


@pytest.mark.parametrize("rate_per_s", [3.0, 5.0, 7.5])
def test_first_tokens_are_reckoned_to_a_few_steps(rate_per_s: float) -> None:
    """With a model that knows the engine, idle or past its capacity: a few hundredths of a second off, never 0.2 s."""
    errors = SideBySide().play(rate_per_s=rate_per_s, requests=400, log_mean=5.0)
    assert len(errors.late_s) > 250
    assert mean_abs(errors.late_s) < 0.1
    assert max(map(abs, errors.late_s)) < 0.2


@pytest.mark.parametrize("rate_per_s", [3.0, 5.0])
def test_tokens_are_reckoned_to_a_few_in_a_hundred(rate_per_s: float) -> None:
    """Answers of 180 tokens end within 5 of what was reckoned, and the engine's own count of steps halves that."""
    alone = SideBySide().play(rate_per_s=rate_per_s, requests=400, log_mean=5.0)
    counted = SideBySide().play(rate_per_s=rate_per_s, requests=400, log_mean=5.0, readings=True)
    assert mean_abs(alone.tokens) < 5.0
    assert mean_abs(counted.tokens) < 1.5
    assert mean_abs(counted.tokens) < 0.6 * mean_abs(alone.tokens)


def test_two_engines_reckoned_as_one() -> None:
    """Each has half of the load. No engine is just the mean of the two, so an answer of 180 tokens may be reckoned 10
    too long or too short, and a first token a tenth of a second off.
    """
    side_by_side = SideBySide(engines=2)
    errors = side_by_side.play(rate_per_s=10.0, requests=600, log_mean=5.0, readings=True)
    assert mean_abs(errors.late_s) < 0.15
    assert mean_abs(errors.tokens) < 15.0
    assert abs(mean(errors.tokens)) < 5.0
    assert side_by_side.reckoning.decoding == pytest.approx(
        mean(engine.decoding for engine in side_by_side.engines), abs=2.0
    )


@pytest.mark.parametrize(("slower", "rate_per_s"), [(1.5, 4.5), (0.5, 12.0), (0.5, 16.0)])
def test_outcomes_set_a_wrong_model_right(slower: float, rate_per_s: float) -> None:
    """Of an engine half as fast or twice as fast as the model says, the times to first tokens that outcomes tell bring
    the reckoning within 0.2 s: half of what it is off without them, or less.
    """
    told, untold = (
        SideBySide(slower=slower)
        .play(rate_per_s=rate_per_s, requests=800, log_mean=2.5, outcomes=outcomes)
        .late_s[400:]
        for outcomes in (True, False)
    )
    assert mean_abs(told) < 0.2
    assert mean_abs(told) < 0.5 * mean_abs(untold)


def test_readings_set_a_wrong_model_right() -> None:
    """Of an overloaded engine of two and a half times the step time, counters keep the reckoning within a second; left
    alone it is behind by as much as the queue in the engine has grown.
    """
    told, untold = (
        SideBySide(slower=2.5).play(rate_per_s=4.0, requests=500, log_mean=4.0, readings=readings).late_s[150:]
        for readings in (True, False)
    )
    assert mean_abs(told) < 1.0
    assert mean_abs(untold) > 4.0 * mean_abs(told)


# what it is told, one by one


def reckoning(*prompts: float, **facts: Any) -> Reckoning:
    """One engine with prompts `0`, `1`, .. just sent to it."""
    defaults: dict[str, Any] = {"batched_tokens": 1024, "width": 1, "now_s": 0.0, "model": taught()}
    made = Reckoning(**(defaults | facts))
    for number, prompt_tokens in enumerate(prompts):
        made.admit(str(number), cost(prompt_tokens=prompt_tokens, completion_tokens=100.0), made.now_s)
    return made


def first_s(made: Reckoning, work_id: str) -> float | None:
    row = made.row(work_id)
    assert row is not None
    return row.first_s


def test_a_prompt_takes_its_tokens_over_the_rate() -> None:
    """One of ten full chunks is done after ten steps of them, and not before."""
    made = reckoning(10240.0)
    step_s = taught().step_s(0.0, 1024.0, 0.0, 1024.0 * 5120.0)
    while made.now_s < 9.0 * step_s:
        made.advance(made.now_s + 0.01)
    assert first_s(made, "0") is None
    assert made.line.done_tokens == pytest.approx(9300.0, rel=0.03)  # the context grows, and the last steps are longest
    while made.now_s < 11.0 * step_s:
        made.advance(made.now_s + 0.01)
    assert first_s(made, "0") == pytest.approx(10.0 * step_s, rel=0.03)
    assert (made.decoding, made.line.left_tokens) == (1.0, 0.0)


def test_every_sequence_gains_a_token_a_step() -> None:
    """Alone in the engine, one sequence has made as many tokens as steps of its size fit into the time."""
    made = reckoning(1.0)
    for _ in range(100):
        made.advance(made.now_s + 0.1)
    assert made.kv_tokens == pytest.approx(10.0 / taught().step_s(1.0, 0.0, 300.0), rel=0.03)


def test_a_look_that_comes_late_finds_the_same() -> None:
    """One look after five seconds, or fifty in between: the same first tokens, to a few hundredths of a second."""
    often, once = (reckoning(*[2000.0] * 20) for _ in range(2))
    for tenth in range(1, 51):
        often.advance(tenth / 10.0)
    once.advance(5.0)
    for number in range(20):
        assert first_s(once, str(number)) == pytest.approx(first_s(often, str(number)), abs=0.05)


def test_a_first_token_that_is_seen_is_the_truth() -> None:
    """Where they are seen, a prompt waits at 95 % for its own; one that was reckoned to decode already begins anew."""
    made = reckoning(1000.0, 1000.0)
    made.sees_first_tokens = True
    made.advance(5.0)
    assert (len(made.line), made.line.done_tokens, made.decoding) == (2, 950.0, 0.0)
    made.first_token("0", 5.0)
    assert (first_s(made, "0"), made.decoding, made.line.left_tokens) == (5.0, 1.0, 1000.0)
    before = reckoning(1000.0)
    before.advance(5.0)
    assert before.kv_tokens > 1100.0
    before.first_token("0", 5.0)
    before.refresh()
    assert before.kv_tokens == 1000.0


def test_the_first_token_of_a_stranger_changes_nothing() -> None:
    """Nor that of one that was adopted: nobody knows its prompt."""
    made = reckoning(1000.0)
    made.adopt("old", sequences=1, kv_tokens=50, now_s=0.0)
    for work_id in ("stranger", "old"):
        made.first_token(work_id, 0.001)
    assert (len(made.line), made.decoding) == (1, 1.0)


def test_what_is_adopted_holds_and_does_not_grow() -> None:
    """A request of an earlier process decodes beside the others and keeps its size until it is released."""
    made = reckoning()
    made.adopt("old", sequences=3, kv_tokens=500, now_s=0.0)
    made.advance(60.0)
    made.refresh()
    assert (made.kv_tokens, made.table.sequences, made.decoding, len(made)) == (500.0, 3, 3.0, 0)
    assert made.release("old", 61.0) is None
    assert (made.kv_tokens, made.table.sequences) == (0.0, 0)


def test_an_engine_that_has_fewer_waiting_is_further_on() -> None:
    """Two waiting of six are two prompts not begun and one under way: the first three have their first tokens."""
    made = reckoning(*[2000.0] * 6)
    made.count(EngineReading(running=4, waiting=2))
    assert list(made.line) == ["3", "4", "5"]
    assert made.decoding == 3.0


def test_an_engine_that_has_more_waiting_is_less_far() -> None:
    """Whoever was reckoned to have begun last stands in line again, in order."""
    made = reckoning(*[500.0] * 6)
    made.advance(5.0)
    assert made.decoding == 6.0
    made.count(EngineReading(running=3, waiting=3))
    assert list(made.line) == ["3", "4", "5"]
    assert [first_s(made, name) is None for name in ("2", "3", "4", "5")] == [False, True, True, True]
    assert made.decoding == 3.0


def test_an_engine_that_others_use_too_says_nothing_of_our_line() -> None:
    """Where it has many more sequences than were sent, or many fewer, its queue is not ours."""
    for running, waiting in [(20, 5), (0, 0)]:
        made = reckoning(*[2000.0] * 6)
        made.count(EngineReading(running=running, waiting=waiting))
        assert len(made.line) == 6


def test_steps_counted_are_tokens_gained() -> None:
    """Whatever was reckoned: forty steps between two readings are forty tokens; counters that went back say nothing."""
    made = reckoning(1.0)
    made.advance(1.0)
    made.count(EngineReading(steps_total=1000.0))
    before = made.kv_tokens
    made.advance(2.0)
    made.count(EngineReading(steps_total=1040.0))
    assert made.kv_tokens == pytest.approx(before + 40.0)
    made.count(EngineReading(steps_total=3.0))
    assert made.kv_tokens == pytest.approx(before + 40.0)


@pytest.mark.parametrize("total", [nan, inf, -inf, 1e300])
def test_a_count_that_cannot_be_says_nothing(total: float) -> None:
    """No number of steps, or more than time allows: what each request holds stays what was reckoned."""
    made = reckoning(1.0)
    made.advance(1.0)
    before = made.kv_tokens
    for counted in (0.0, total, 0.0, 10.0):
        made.count(EngineReading(steps_total=counted))
    assert made.kv_tokens == pytest.approx(before, abs=50.0)


def test_an_outcome_corrects_by_half() -> None:
    """A prompt whose first token came when forty others were reckoned done after it: half of these are to be done
    again, and the rate is 2 % lower, for the engine is more than a second behind.
    """
    made = reckoning(*[1000.0] * 80)
    for tenth in range(1, 40):
        made.advance(tenth / 10.0)
    row, left_tokens, rate = made.row("0"), made.line.left_tokens, made.prefill_tokens_per_s
    assert row is not None
    behind_tokens = made.line.frontier_tokens - 1000.0
    assert behind_tokens > rate
    made.correct_frontier(row, 3.9)
    assert made.line.left_tokens == pytest.approx(left_tokens + behind_tokens / 2.0)
    assert made.prefill_tokens_per_s == pytest.approx(rate * exp(-0.02))


def test_what_was_corrected_is_not_corrected_again() -> None:
    """Another outcome of the same moment tells the same; only half of what is left is made good by each."""
    made = reckoning(*[1000.0] * 80)
    frontier_tokens = 0.0
    for tenth in range(1, 40):
        made.advance(tenth / 10.0)
        frontier_tokens = made.line.frontier_tokens if tenth == 30 else frontier_tokens
    row = made.row("0")
    assert row is not None
    for share in (0.5, 0.75, 0.875):
        made.correct_frontier(row, 3.0)
        assert made.line.debt_tokens == pytest.approx(share * (frontier_tokens - 1000.0))


def test_an_older_outcome_than_the_latest_says_nothing() -> None:
    """One whose first token came more than half a second before another's that is known."""
    made = reckoning(*[1000.0] * 80)
    for tenth in range(1, 40):
        made.advance(tenth / 10.0)
    late, old = made.row("40"), made.row("0")
    assert late is not None
    assert old is not None
    made.correct_frontier(late, 3.0)
    before = made.line.debt_tokens
    made.correct_frontier(old, 2.4)
    assert made.line.debt_tokens == before


def test_an_outcome_of_an_engine_that_is_ahead() -> None:
    """First tokens that came before they were reckoned bring those on whose prompts must be done by now."""
    made = reckoning(*[1000.0] * 80)
    made.advance(0.2)
    row, left_tokens = made.row("40"), made.line.left_tokens
    assert row is not None
    ahead_tokens = 41_000.0 - made.line.frontier_tokens
    made.correct_frontier(row, 0.2)
    assert made.line.left_tokens == pytest.approx(left_tokens - ahead_tokens / 2.0)
    assert first_s(made, "15") == 0.2


def test_an_empty_engine_owes_nothing() -> None:
    """Debt goes with the last request, and one that is told of after it is no debt: nothing is in line behind it."""
    made = reckoning(*[1000.0] * 80)
    for tenth in range(1, 40):
        made.advance(tenth / 10.0)
    row = made.row("0")
    assert row is not None
    made.correct_frontier(row, 3.9)
    assert made.line.debt_tokens > 0.0
    for number in range(80):
        made.release(str(number), 4.0)
    assert made.line.left_tokens == 0.0
    made.correct_frontier(row, 3.95)
    assert made.line.left_tokens == 0.0


EVENTS = ["admit", "admit", "advance", "advance", "release", "first", "count", "outcome", "adopt"]


@pytest.mark.parametrize("sees_first_tokens", [False, True])
@given(
    st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 3000), st.integers(0, 50)), max_size=60),
    st.integers(1, 3),
)
def test_whatever_it_is_told_nothing_is_lost(
    sees_first_tokens: bool, events: list[tuple[str, int, int]], width: int
) -> None:
    """Who was sent to it is in line or decodes, never both; figures stay figures, and an empty engine holds nothing."""
    made, inside, gone, steps = reckoning(width=width), dict[str, bool](), list[Row](), 0.0
    made.sees_first_tokens = sees_first_tokens
    for number, (event, value, pick) in enumerate(events):
        name = list(inside)[pick % len(inside)] if inside else ""
        match event:
            case "admit":
                made.admit(str(number), cost(prompt_tokens=float(value), sequences=pick % 3 + 1), made.now_s)
                inside[str(number)] = True
            case "adopt":
                made.adopt(str(number), sequences=pick % 3 + 1, kv_tokens=value, now_s=made.now_s)
                inside[str(number)] = False
            case "advance":
                made.advance(made.now_s + value / 1000.0)
            case "release" if inside:
                row = made.release(name, made.now_s)
                assert (row is not None) == inside.pop(name)
                gone += [row] if row else []
            case "first":
                made.first_token(name, made.now_s)
            case "count":
                steps += value / 10.0
                waiting = pick % (made.table.sequences + 2)
                running = made.table.sequences - waiting
                made.count(EngineReading(running=running, waiting=waiting, steps_total=steps))
            case "outcome" if gone:
                made.correct_frontier(gone[pick % len(gone)], made.now_s - value / 1000.0)
        assert [name for name in inside if name in made] == [name for name, sent in inside.items() if sent]
        assert all(name in made for name in made.line)
        assert [name for name in made.line if made.table.generated(name, 1e9)] == []
        waiting_sequences = sum(row.cost.sequences for name in made.line if (row := made.row(name)) is not None)
        assert made.table.decoding + waiting_sequences == made.table.sequences
        assert 0.0 <= made.line.left_tokens < inf
        assert -1e-6 <= made.kv_tokens < inf
        assert 0.0 < made.prefill_tokens_per_s < inf
        if not inside:
            assert (made.table.sequences, made.kv_tokens, made.line.left_tokens) == (0, 0.0, 0.0)
