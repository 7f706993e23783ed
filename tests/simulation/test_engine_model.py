"""The engine model: what it promises, and step by step against a naive engine that keeps every number by itself."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.sim.engine_model import EngineModel, blocks_for
from tidegate.sim.engine_records import StepEvent
from tidegate.sim.profiles import BLOCK_TOKENS, PROFILES, EngineProfile, StepCost

COST = StepCost(base_s=0.004, floor_s=0.010, token_s=1e-4, kv_token_s=1e-6, attention_s=1e-8)


def profile(*, slots: int = 4, kv_tokens: int = 1600, batched_tokens: int = 64) -> EngineProfile:
    return EngineProfile(
        name="test",
        cost=COST,
        kv_tokens=kv_tokens,
        slots=slots,
        batched_tokens=batched_tokens,
        context_tokens=kv_tokens // BLOCK_TOKENS * BLOCK_TOKENS,
        tpot_target_s=0.1,
    )


def run_until_idle(model: EngineModel) -> list[StepEvent]:
    events = []
    while (at_s := model.next_step_at_s()) is not None:
        events += model.advance(at_s)
    return events


@dataclass
class NaiveSequence:
    id: str
    prompt: int
    completion: int
    generated: int = 0
    kv: int = 0
    target: int = 0
    growth: int = 0

    @property
    def prefilling(self) -> bool:
        return self.kv < self.target


@dataclass
class NaiveEngine:
    """vLLM's scheduling loop written as it is told: every running sequence is asked in turn what it needs."""

    profile: EngineProfile
    running: list[NaiveSequence] = field(default_factory=list)
    waiting: list[NaiveSequence] = field(default_factory=list)
    end_s: float | None = None
    preempted: list[str] = field(default_factory=list)

    @property
    def blocks_used(self) -> int:
        return sum(blocks_for(each.kv + each.growth) for each in self.running)

    def submit(self, name: str, prompt: int, completion: int, now_s: float) -> None:
        self.waiting.append(NaiveSequence(name, prompt, completion, target=prompt))
        if self.end_s is None:
            self.schedule(now_s)

    def abort(self, name: str) -> None:
        self.running = [each for each in self.running if each.id != name]
        self.waiting = [each for each in self.waiting if each.id != name]

    def fits(self, each: NaiveSequence, growth: int) -> bool:
        return self.blocks_used + blocks_for(each.kv + growth) - blocks_for(each.kv) <= self.profile.kv_blocks

    def schedule(self, now_s: float) -> None:
        self.preempted, budget, kv_read, pairs, index = [], self.profile.batched_tokens, 0, 0.0, 0
        while index < len(self.running):
            each = self.running[index]
            each_prefills = each.prefilling
            growth = min(each.target - each.kv, budget) if each_prefills else 1
            while each in self.running and not self.fits(each, growth):
                victim = self.running.pop()
                victim.target, victim.kv, victim.growth = victim.prompt + victim.generated, 0, 0
                self.waiting.insert(0, victim)
                self.preempted.append(victim.id)
            if each in self.running:
                each.growth = growth
                budget -= growth
                kv_read += 0 if each_prefills else each.kv + 1
                pairs += growth * (each.kv + growth / 2) if each_prefills else 0.0
            index += 1
        while budget and self.waiting and not self.preempted and len(self.running) < self.profile.slots:
            each = self.waiting[0]
            growth = min(each.target, budget)
            if not self.fits(each, growth):
                break
            self.running.append(self.waiting.pop(0))
            each.growth = growth
            budget -= growth
            pairs += growth * growth / 2
        tokens = self.profile.batched_tokens - budget
        self.end_s = now_s + self.profile.cost.seconds(tokens, kv_read, pairs) if self.running else None

    def finish(self) -> tuple[float, dict[str, int], list[str]]:
        """End the step: when, tokens a sequence has now, and who finished."""
        end_s = self.end_s
        assert end_s is not None
        counts, finished = {}, []
        for each in list(self.running):
            each.kv, each.growth = each.kv + each.growth, 0
            if each.prefilling:
                continue
            each.generated += 1
            each.target = each.kv
            counts[each.id] = each.generated
            if each.generated == each.completion:
                finished.append(each.id)
                self.running.remove(each)
        self.schedule(end_s)
        return end_s, counts, finished


SUBMIT = st.tuples(st.just("submit"), st.integers(1, 100), st.integers(1, 120))
STEP = st.tuples(st.just("step"), st.integers(1, 25), st.just(0))
ABORT = st.tuples(st.just("abort"), st.integers(0, 50), st.just(0))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(SUBMIT, SUBMIT, STEP, ABORT), max_size=60), st.integers(224, 500), st.integers(2, 8))
def test_agrees_with_a_naive_engine(commands: list[tuple[str, int, int]], kv_tokens: int, slots: int) -> None:
    """Counting by step and phase gives the times, tokens, ends, preemptions and blocks that asking each one does."""
    shape = profile(slots=slots, kv_tokens=kv_tokens)
    model, naive, now_s, live = EngineModel(shape), NaiveEngine(shape), 10.0, list[str]()

    def step() -> None:
        nonlocal now_s
        at_s = model.next_step_at_s()
        if at_s is None:
            assert naive.end_s is None
            return
        before = list(naive.preempted)
        (event,) = model.advance(at_s)
        end_s, counts, finished = naive.finish()
        now_s = end_s
        assert event.end_s == pytest.approx(end_s)
        assert sorted(event.finished) == sorted(finished)
        assert event.preempted == before
        assert event.tokens == len(counts)
        live[:] = [name for name in live if name not in finished]
        assert {name: model.generated_tokens(name) for name in counts if name in live} == {
            name: count for name, count in counts.items() if name in live
        }

    for serial, (kind, first, second) in enumerate(commands):
        if kind == "submit" and model.holds(first, second):
            assert model.submit(str(serial), first, second, now_s)
            naive.submit(str(serial), first, second, now_s)
            live.append(str(serial))
        elif kind == "abort" and live:
            name = live.pop(first % len(live))
            assert model.abort(name, now_s)
            naive.abort(name)
        elif kind == "step":
            for _ in range(first):
                step()
        assert (model.running, model.waiting) == (len(naive.running), len(naive.waiting))
        assert model.blocks_used == naive.blocks_used <= model.blocks
        assert model.running <= slots
    while model.next_step_at_s() is not None:
        step()
    counters = model.counters
    assert live == []
    assert counters.submitted == counters.finished + counters.aborted
    assert (model.running, model.waiting, model.decoding, model.blocks_used) == (0, 0, 0, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 80), st.floats(0.0, 0.2)), min_size=1, max_size=60))
def test_every_request_ends(arrivals: list[tuple[int, int, float]]) -> None:
    """Whatever comes, each request finishes or is refused, and the engine made exactly the tokens they asked for."""
    model, now_s, accepted_tokens = EngineModel(profile(kv_tokens=512), queue_len_max=5), 0.0, 0
    for serial, (prompt, completion, gap_s) in enumerate(arrivals):
        now_s += gap_s
        model.advance(now_s)
        if model.submit(str(serial), prompt, completion, now_s):
            accepted_tokens += completion
        assert model.waiting <= 5 + model.counters.preemptions
    run_until_idle(model)
    counters = model.counters
    assert counters.finished + counters.rejected == len(arrivals)
    assert counters.completion_tokens == accepted_tokens
    assert counters.wasted_tokens == 0


def test_step_time_is_the_formula() -> None:
    """A prompt of two chunks, then decoding: each step takes base, matrices, KV and attention as the formula says."""
    model = EngineModel(profile())
    model.submit("a", 100, 3, 0.0)
    ends = [event.end_s for event in run_until_idle(model)]
    durations = [end - start for start, end in zip([0.0, *ends], ends, strict=False)]

    def expected(tokens: int, kv_tokens: int, attention: float) -> float:
        matrices: float = (0.010**3 + (1e-4 * tokens) ** 3) ** (1 / 3)
        return 0.004 + matrices + 1e-6 * kv_tokens + 1e-8 * attention

    assert durations == pytest.approx(
        [expected(64, 0, 64 * 32), expected(36, 0, 36 * 82), expected(1, 101, 0), expected(1, 102, 0)]
    )


def test_prefill_then_decode_and_decode_goes_first() -> None:
    """The first token comes when the last chunk is computed, and a decoding sequence is never held up by a prompt."""
    model = EngineModel(profile(batched_tokens=64))
    model.submit("short", 10, 10, 0.0)
    model.submit("long", 130, 2, 0.0)
    events = run_until_idle(model)
    assert [event.first_tokens for event in events[:5]] == [["short"], [], [], ["long"], []]
    assert [event.tokens for event in events[:5]] == [1, 1, 1, 2, 2]
    assert [event.prompt_tokens for event in events[:5]] == [10, 0, 0, 130, 0]
    assert events[4].finished == ["long"]
    assert events[9].finished == ["short"]


def test_slots_bound_what_runs() -> None:
    """A request over the slots waits its turn, first come first served."""
    model = EngineModel(profile(slots=2, batched_tokens=256))
    for name in "abcd":
        model.submit(name, 10, 5, 0.0)
    assert (model.running, model.waiting) == (1, 3)
    model.advance(model.next_step_at_s() or 0.0)
    assert (model.running, model.waiting) == (2, 2)
    assert [name for event in run_until_idle(model) for name in event.first_tokens] == ["b", "c", "d"]


def test_short_kv_preempts_the_last_started_and_loses_no_token() -> None:
    """When blocks run out, the youngest is computed again later; every token still comes out, once."""
    model = EngineModel(profile(kv_tokens=160, slots=4))
    model.submit("old", 40, 100, 0.0)
    model.submit("young", 40, 100, 0.0)
    events = run_until_idle(model)
    assert {name for event in events for name in event.preempted} == {"young"}
    assert sum(event.tokens for event in events) == 200
    assert [name for event in events for name in event.first_tokens] == ["old", "young"]
    assert [name for event in events for name in event.finished] == ["old", "young"]
    assert model.counters.preemptions == sum(len(event.preempted) for event in events) > 0
    assert model.counters.prompt_tokens == 80
    assert model.counters.prefill_tokens > 80 + 40
    assert model.counters.wasted_prefill_tokens >= 40


def test_abort_frees_at_once() -> None:
    """Slot and blocks of an aborted sequence are free before the step in flight ends, and its tokens count as waste."""
    model = EngineModel(profile())
    model.submit("a", 30, 50, 0.0)
    for _ in range(6):
        model.advance(model.next_step_at_s() or 0.0)
    assert (model.running, model.blocks_used, model.generated_tokens("a")) == (1, 3, 6)
    assert model.abort("a", model.next_step_at_s() or 0.0)
    assert (model.running, model.blocks_used, model.decoding) == (0, 0, 0)
    assert model.counters.wasted_tokens == 6
    assert model.counters.wasted_prefill_tokens == 30
    (event,) = run_until_idle(model)
    assert event.tokens == 0
    assert not model.abort("a", event.end_s)


def test_abort_while_waiting() -> None:
    """A sequence that waits is dropped without a trace on those that run."""
    model = EngineModel(profile(slots=1))
    model.submit("a", 10, 5, 0.0)
    model.submit("b", 10, 5, 0.0)
    assert model.abort("b", 0.0)
    assert (model.running, model.waiting) == (1, 0)
    assert sum(event.tokens for event in run_until_idle(model)) == 5


def test_own_queue_is_bounded() -> None:
    """Over its bounds in sequences or in tokens, the engine refuses and counts it."""
    by_len = EngineModel(profile(slots=1), queue_len_max=2)
    assert [by_len.submit(name, 10, 5, 0.0) for name in "abcd"] == [True, True, True, False]
    by_tokens = EngineModel(profile(slots=1), queue_tokens_max=25)
    assert [by_tokens.submit(name, 10, 5, 0.0) for name in "abcd"] == [True, True, True, False]
    assert (by_len.counters.rejected, by_tokens.counters.rejected) == (1, 1)


def test_refuses_what_can_never_fit() -> None:
    """A sequence larger than the whole cache, without tokens, or with an id in use is the caller's mistake."""
    model = EngineModel(profile(kv_tokens=160))
    assert model.holds(100, 61)
    for prompt, completion in ((100, 62), (0, 5), (5, 0)):
        with pytest.raises(ValueError, match="do not fit"):
            model.submit("a", prompt, completion, 0.0)
    model.submit("a", 5, 5, 0.0)
    with pytest.raises(ValueError, match="already"):
        model.submit("a", 5, 5, 0.0)


def test_an_engine_can_slow_down() -> None:
    """A cost replaced while it runs rules from the next step on."""
    model = EngineModel(profile())
    model.submit("a", 10, 3, 0.0)
    first_s = model.next_step_at_s() or 0.0
    model.cost = COST.scaled(10.0)
    model.advance(first_s)
    assert (model.next_step_at_s() or 0.0) - first_s == pytest.approx(10.0 * COST.seconds(1, 11, 0.0))


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_profiles_hold_together(name: str) -> None:
    """A full batch of every profile decodes within its objective, and a request of the longest context fits."""
    kind = PROFILES[name]
    context = kind.kv_tokens // kind.slots
    assert kind.cost.seconds(kind.slots, kind.slots * context, 0.0) < kind.tpot_target_s
    assert EngineModel(kind).holds(kind.context_tokens - 1, 1)


def test_profile_limits_are_checked() -> None:
    """Limits that contradict each other are refused; a smaller cache shortens the context to whole blocks."""
    demo = PROFILES["demo"]
    with pytest.raises(ValueError, match="batched_tokens"):
        demo.resized(slots=64, batched_tokens=32)
    with pytest.raises(ValueError, match="context_tokens"):
        demo.resized(kv_tokens=8)
    with pytest.raises(ValueError, match="factor"):
        demo.slowed(0.0)
    assert demo.resized(kv_tokens=1000).context_tokens == 992
    assert demo.slowed(2.0).cost.seconds(7, 100, 50.0) == pytest.approx(2.0 * demo.cost.seconds(7, 100, 50.0))
