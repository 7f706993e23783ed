"""The simulated engine's page, read as vLLM's, is its true state at any moment."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.signals.registry import reader_of
from tidegate.sim.engine_metrics import EngineMetrics
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.engine_records import StepEvent
from tidegate.sim.profiles import BLOCK_TOKENS, EngineProfile, StepCost

COST = StepCost(base_s=0.004, floor_s=0.010, token_s=1e-4, kv_token_s=1e-6, attention_s=1e-8)
PROFILE = EngineProfile(
    name="test",
    cost=COST,
    kv_tokens=40 * BLOCK_TOKENS,
    slots=4,
    batched_tokens=64,
    context_tokens=40 * BLOCK_TOKENS,
    tpot_target_s=0.1,
)
requests = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 200)), min_size=1, max_size=20)


def step(model: EngineModel, metrics: EngineMetrics, seen: list[StepEvent]) -> bool:
    """One step of the engine, told to its page as its driver does; False where it is idle."""
    at_s = model.next_step_at_s()
    if at_s is None:
        return False
    for event in model.advance(at_s):
        metrics.on_step(event)
        seen.append(event)
    return True


@settings(max_examples=50)
@given(requests, st.integers(0, 120))
def test_the_page_says_what_the_engine_is(lengths: list[tuple[int, int]], steps: int) -> None:
    """Sequences, cache, steps, tokens, preemptions and refusals agree with the model, in the middle of its work."""
    model = EngineModel(PROFILE, queue_len_max=8)
    metrics = EngineMetrics(model, model_name="tiny")
    seen: list[StepEvent] = []
    for number, (prompt_tokens, completion_tokens) in enumerate(lengths):
        model.submit(str(number), prompt_tokens, completion_tokens, 0.0)
    for _ in range(steps):
        if not step(model, metrics, seen):
            break
    reading = reader_of("vllm").read(metrics.page())
    assert (reading.running, reading.waiting) == (model.running, model.waiting)
    assert reading.kv_usage == model.kv_usage
    assert reading.kv_tokens_max == PROFILE.kv_tokens
    assert reading.preemptions_total == model.counters.preemptions
    assert reading.rejections_total == model.counters.rejected
    giving = [event for event in seen if event.tokens]
    assert reading.steps_total == len(giving)
    assert reading.tokens_total == sum(event.tokens + event.prompt_tokens for event in giving)
    assert reading.ready
    assert reading.checked() == reading


def test_scenes_reach_what_they_compare() -> None:
    """The lengths above do fill the cache, the queue and its bound: else zeros would be compared with zeros."""
    model = EngineModel(PROFILE, queue_len_max=8)
    metrics = EngineMetrics(model, model_name="tiny")
    for number in range(20):
        model.submit(str(number), 150, 200, 0.0)
    for _ in range(120):
        step(model, metrics, [])
    reading = reader_of("vllm").read(metrics.page())
    assert all(
        (
            reading.running,
            reading.waiting,
            reading.kv_usage,
            reading.steps_total,
            reading.preemptions_total,
            reading.rejections_total,
        )
    )
