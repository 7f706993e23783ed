"""The gates, one by one: open or shut, and with which figures."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.gates import GATES
from tidegate.admission.gates.prefill import backlog_s_max
from tidegate.admission.limits import GATES_DEFAULT, GateName, Limits
from tidegate.admission.load import Signals
from tidegate.admission.rules import gates_of
from tidegate.admission.work import Work

from .builders import StillEngine, cost, engine, load

WORK = Work(id="w", ttft_budget_s=2.0, tpot_target_s=0.15)


def refusal(
    name: GateName,
    at: StillEngine | None = None,
    *,
    sequences: int = 1,
    in_flight: int = 0,
    signals: Signals | None = None,
    limits: Limits | None = None,
    work: Work = WORK,
) -> Reason | None:
    """What one gate says of a request to this engine, an idle one where none is given."""
    place = engine() if at is None else at
    pool = load(place, cost=cost(sequences=sequences), in_flight=in_flight, signals=signals or Signals())
    return GATES[name].refusal(work, pool, place, limits or Limits())


def test_slots() -> None:
    """The request's sequences must fit beside those that run."""
    assert refusal(GateName.SLOTS, engine(sequences=3, slots=4)) is None
    assert refusal(GateName.SLOTS, engine(sequences=4, slots=4)) == Reason(Rule.SLOTS, 5, 4, "sequences")
    assert refusal(GateName.SLOTS, engine(sequences=2, slots=4), sequences=2) is None
    assert refusal(GateName.SLOTS, engine(sequences=2, slots=4), sequences=3) == Reason(Rule.SLOTS, 5, 4, "sequences")


def test_kv_tokens_that_would_fit_all_at_once_are_enough() -> None:
    """Up to 0.95 of the capacity nobody asks for the peak."""
    assert refusal(GateName.KV, engine(demand_tokens=950.0, peak_tokens=inf, kv_tokens_max=1000)) is None


def test_kv_tokens_need_room_at_the_coming_peak() -> None:
    """Where they would not fit all at once, they must fit at the moment when most is held."""
    assert refusal(GateName.KV, engine(demand_tokens=5000.0, peak_tokens=950.0, kv_tokens_max=1000)) is None
    shut = refusal(GateName.KV, engine(demand_tokens=5000.0, peak_tokens=951.0, kv_tokens_max=1000))
    assert shut == Reason(Rule.KV_TOKENS, 951.0, 950.0, "tokens")


@pytest.mark.parametrize(
    ("ttft_budget_s", "step_s", "expected_s"),
    [
        (2.0, 0.05, 0.4),  # the usual: four tenths of a second, a fifth of the budget
        (60.0, 0.05, 0.4),  # a large budget gives no more: the queue is the better place to wait
        (60.0, 0.2, 1.0),  # an engine of long steps needs five of them
        (2.0, 0.2, 0.4),  # unless the budget is short
        (0.5, 0.05, 0.1),  # a fifth of a tight budget
        (0.5, 0.2, 0.2),  # but a whole step, or nothing would be prefilled beside another
    ],
)
def test_the_backlog_that_an_engine_may_have(ttft_budget_s: float, step_s: float, expected_s: float) -> None:
    """min(B / 5, max(0.4 s, 5 steps)), at least a step."""
    assert backlog_s_max(ttft_budget_s, step_s) == pytest.approx(expected_s)


def test_prefill() -> None:
    """Prompts may go in while no more than the backlog is before them, and always where nothing is prefilling."""
    assert refusal(GateName.PREFILL, engine(prefilling=True, prefill_left_s=0.4, step_s=0.05)) is None
    shut = refusal(GateName.PREFILL, engine(prefilling=True, prefill_left_s=0.41, step_s=0.05))
    assert shut == Reason(Rule.PREFILL, 0.41, 0.4, "s")
    assert refusal(GateName.PREFILL, engine(prefilling=False, prefill_left_s=9.0)) is None


def test_prefill_of_an_engine_on_trial() -> None:
    """A quarter of the share is a quarter of the backlog."""
    shut = refusal(GateName.PREFILL, engine(prefilling=True, prefill_left_s=0.11, step_s=0.05, share=0.25))
    assert shut == Reason(Rule.PREFILL, 0.11, 0.1, "s")


def test_tpot() -> None:
    """Where prompts are paced, only while some are saved up; where even decoding alone is too slow, never."""
    assert refusal(GateName.TPOT, engine(paced_tokens_per_s=inf, saved_tokens=-5.0)) is None
    assert refusal(GateName.TPOT, engine(paced_tokens_per_s=100.0, saved_tokens=0.1)) is None
    shut = Reason(Rule.TPOT, 0.2, 0.85 * 0.15, "s")
    assert refusal(GateName.TPOT, engine(paced_tokens_per_s=100.0, saved_tokens=0.0, step_s=0.2)) == shut
    assert refusal(GateName.TPOT, engine(paced_tokens_per_s=0.0, saved_tokens=50.0, step_s=0.2)) == shut
    assert refusal(GateName.TPOT, engine(paced_tokens_per_s=-3.0, saved_tokens=50.0, step_s=0.2)) == shut


def test_concurrency() -> None:
    """As many as the operator allows, over the whole pool, and an empty engine of it has no right of its own."""
    limits = Limits(concurrency=8)
    assert refusal(GateName.CONCURRENCY, in_flight=7, limits=limits) is None
    assert refusal(GateName.CONCURRENCY, in_flight=8, limits=limits) == Reason(Rule.CONCURRENCY, 9, 8, "requests")
    assert refusal(GateName.CONCURRENCY, in_flight=10**6) is None
    assert GATES[GateName.CONCURRENCY].always


@pytest.mark.parametrize(
    ("name", "rule", "signals"),
    [
        (GateName.P99_WINDOW, Rule.P99_WINDOW, Signals(p99_window=8.5)),
        (GateName.LITTLES_LAW, Rule.LITTLES_LAW, Signals(littles_law=8.5)),
    ],
)
def test_learned_limits_on_requests_in_flight(name: GateName, rule: Rule, signals: Signals) -> None:
    """Whole requests under the limit go; where nothing was learned yet the gate is open."""
    assert refusal(name, in_flight=7, signals=signals) is None
    assert refusal(name, in_flight=8, signals=signals) == Reason(rule, 9, 8.5, "requests")
    assert refusal(name, in_flight=10**6) is None
    assert GATES[name].always


def test_memory_floor() -> None:
    """Free GPU memory must not be below the floor; where no engine tells, or none is stated, the gate is open."""
    limits = Limits(memory_floor_mib=4096)
    assert refusal(GateName.MEMORY_FLOOR, signals=Signals(memory_free_mib=4096.0), limits=limits) is None
    shut = refusal(GateName.MEMORY_FLOOR, signals=Signals(memory_free_mib=4095.0), limits=limits)
    assert shut == Reason(Rule.MEMORY_FLOOR, 4095.0, 4096.0, "MiB")
    assert refusal(GateName.MEMORY_FLOOR, limits=limits) is None
    assert refusal(GateName.MEMORY_FLOOR, signals=Signals(memory_free_mib=0.0)) is None
    assert GATES[GateName.MEMORY_FLOOR].always


@pytest.mark.parametrize("name", GateName)
def test_every_gate_is_open_to_a_request_that_would_be_alone(name: GateName) -> None:
    """However large it is: nothing would ever end its wait. But the floor is for what others take."""
    huge = cost(sequences=10**6, prompt_tokens=1e9, completion_tokens=1e9, kv_tokens=10**9)
    place = engine(slots=1, kv_tokens_max=1)
    pool = load(place, cost=huge, signals=Signals(p99_window=1.0, littles_law=1.0))
    gate = GATES[name]
    assert not gate.always or gate.refusal(WORK, pool, place, Limits(concurrency=1)) is None


def test_gates_in_force_are_asked_in_one_order() -> None:
    """Whatever order an operator names them in; each has a name, and those of the engine are in force by default."""
    assert set(GATES) == set(GateName)
    everything = gates_of(Limits(gates=tuple(reversed(GateName))))
    assert everything == tuple(GATES.values())
    assert gates_of(Limits()) == tuple(GATES[name] for name in GATES_DEFAULT)
    assert gates_of(Limits(gates=())) == ()


@given(
    name=st.sampled_from(GateName),
    sequences=st.integers(0, 8),
    tokens=st.floats(0.0, 2000.0),
    left_s=st.floats(0.0, 2.0),
    in_flight=st.integers(0, 20),
    more=st.tuples(st.integers(0, 3), st.floats(0.0, 500.0), st.floats(0.0, 1.0), st.integers(0, 5)),
)
def test_a_gate_that_is_shut_stays_shut_under_more_load(
    name: GateName,
    sequences: int,
    tokens: float,
    left_s: float,
    in_flight: int,
    more: tuple[int, float, float, int],
) -> None:
    """More sequences, tokens, prompts and requests never open one; asking changes nothing."""

    def state(plus: tuple[int, float, float, int]) -> Reason | None:
        place = engine(
            sequences=sequences + plus[0],
            demand_tokens=tokens + plus[1],
            peak_tokens=tokens + plus[1],
            prefilling=True,
            prefill_left_s=left_s + plus[2],
            paced_tokens_per_s=100.0,
            saved_tokens=500.0 - tokens - plus[1],
        )
        signals = Signals(p99_window=9.0, littles_law=7.5, memory_free_mib=1000.0 - tokens - plus[1])
        limits = Limits(concurrency=10, memory_floor_mib=100)
        return refusal(name, place, in_flight=in_flight + plus[3], signals=signals, limits=limits)

    before = state((0, 0.0, 0.0, 0))
    assert before == state((0, 0.0, 0.0, 0))
    assert before is None or state(more) is not None
    assert before is None or before.unit in {"sequences", "tokens", "requests", "s", "MiB"}
