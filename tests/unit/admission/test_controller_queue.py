"""Who waits for what in a pool, and who goes before whom: the gates and the queue behind one controller."""

import pytest

from tidegate.admission.decision import Enqueue, Reject, Rule
from tidegate.admission.limits import GateName
from tidegate.admission.queues.orders import Order

from .builders import outcome, patient, pool, words


def test_a_low_one_is_not_starved_by_endless_traffic() -> None:
    """While another tenant keeps sending at twice the capacity, one request of weight 1 is served within one round."""
    controller = pool(queue_len=40)
    controller.submit(patient("high-0", tenant="high", weight=4), 0.0)
    running, sent, admitted = "high-0", 1, 0
    for _ in range(10):
        controller.submit(patient(f"high-{sent}", tenant="high", weight=4), 0.0)
        sent += 1
    controller.submit(patient("low", tenant="low"), 0.0)
    while running != "low":
        admitted += 1
        assert admitted <= 5
        for _ in range(2):
            controller.submit(patient(f"high-{sent}", tenant="high", weight=4), float(admitted))
            sent += 1
        controller.release(running, float(admitted))
        (verdict,) = controller.take_verdicts()
        running = verdict.id


def test_a_flood_in_the_queue_makes_room_for_a_quiet_tenant() -> None:
    """The newest of the flood is refused in its favour, with its waiting time, and the queue stays within its bound."""
    controller = pool(queue_len=2)
    for work_id in ("a", "b", "c"):
        controller.submit(patient(work_id, tenant="loud"), 0.0)
    assert controller.preview(patient("q", tenant="quiet"), 3.0) is None
    assert words([controller.submit(patient("q", tenant="quiet"), 3.0)]) == ["q enqueue slots"]
    (evicted,) = controller.take_verdicts()
    assert isinstance(evicted, Reject)
    assert (evicted.id, evicted.reason.rule, evicted.waited_s) == ("c", Rule.QUEUE_FULL, 3.0)
    assert controller.snapshot(3.0).queue_len == 2


def test_a_large_request_is_passed_by_small_ones_for_a_while_only() -> None:
    """By deadline and cost, those that come within alpha times its cost go before it, and no others."""
    controller = pool(alpha=3.0)
    controller.submit(patient("a"), 0.0)
    large = patient("large", prompt_tokens=50_000)
    cost_s = controller.price(large).bottleneck_s
    for work, at_s in [(large, 0.0), (patient("soon"), 2.9 * cost_s), (patient("late"), 3.1 * cost_s)]:
        assert isinstance(controller.submit(work, at_s), Enqueue)
    order: list[str] = []
    for ended in ("a", "soon", "large"):
        controller.release(ended, 4.0 * cost_s)
        order += words(controller.take_verdicts())
    assert order == ["soon admit", "large admit", "late admit"]


@pytest.mark.parametrize(("tokens", "first"), [(1, "long-2"), (20_000, "short-2")])
def test_a_tenant_is_charged_for_what_its_requests_turned_out_to_be(tokens: int, first: str) -> None:
    """Of two tenants who wait, the first to come goes first, unless it had an answer much longer than expected."""
    controller = pool(slots=1)
    controller.submit(patient("long-1", tenant="long"), 0.0)
    for tenant in ("long", "short"):
        controller.submit(patient(f"{tenant}-2", tenant=tenant), 1.0)
    controller.settle(outcome("long-1", completion_tokens=tokens), 2.0)
    controller.release("long-1", 3.0)
    assert words(controller.take_verdicts()) == [f"{first} admit"]


def test_a_large_request_goes_when_it_is_alone() -> None:
    """A request larger than what was learned of the engine waits until nothing runs, and then books all of it."""
    controller = pool(slots=None, order=Order.FIFO)
    controller.submit(patient("small"), 0.0)
    decisions = [
        controller.submit(patient(name, prompt_tokens=size), 0.0) for name, size in [("large", 500_000), ("next", 1)]
    ]
    assert words(decisions) == ["large enqueue kv_tokens", "next enqueue queue_order"]
    controller.release("small", 1.0)
    assert words(controller.take_verdicts()) == ["large admit"]
    assert controller.snapshot(1.0).kv_tokens == 100_000
    controller.release("large", 2.0)
    assert words(controller.take_verdicts()) == ["next admit"]


def test_more_sequences_than_were_learned_go_when_they_are_alone() -> None:
    """A learned number of slots never proves that a request cannot run; a stated one does."""
    controller = pool(slots=None)
    controller.submit(patient("small"), 0.0)
    assert words([controller.submit(patient("many", sequences=500), 0.0)]) == ["many enqueue slots"]
    controller.release("small", 1.0)
    assert words(controller.take_verdicts()) == ["many admit"]
    assert controller.snapshot(1.0).sequences == 256
    assert words([pool(slots=256).submit(patient("many", sequences=500), 0.0)]) == ["many reject request_too_large"]


def test_a_first_token_that_was_seen_opens_the_prefill_gate() -> None:
    """While a long prompt is under way nobody joins it; its first token ends that at once, long before the books do."""
    controller = pool(slots=None)
    controller.submit(patient("long", prompt_tokens=40_000), 0.0)
    assert words([controller.submit(patient("next"), 0.1)]) == ["next enqueue prefill"]
    controller.tick(0.2)
    assert controller.take_verdicts() == []
    controller.first_token("long", 0.3)
    assert words(controller.take_verdicts()) == ["next admit"]
    controller.first_token("stranger", 0.3)


def test_a_prompt_reckoned_done_opens_the_prefill_gate() -> None:
    """Where nothing is seen of the answer, who waits for a prompt to be done goes when its time has passed."""
    controller = pool(slots=None)
    controller.submit(patient("long", prompt_tokens=40_000), 0.0)
    controller.submit(patient("next"), 0.1)
    granted_at_s = None
    for _ in range(1000):
        wake_s = controller.next_wake_s()
        if wake_s is None:
            break
        controller.tick(wake_s)
        granted_at_s = wake_s
    assert words(controller.take_verdicts()) == ["next admit"]
    assert granted_at_s is not None
    assert 1.0 < granted_at_s < 10.0  # of some 4 s for 40,000 tokens, by what is assumed of an engine


def test_a_named_guard_limits_the_whole_pool() -> None:
    """Two requests in flight are two, whichever engine of four they run in; the third waits for one to end."""
    controller = pool(slots=None, engines=4, gates=(GateName.CONCURRENCY,), concurrency=2)
    decisions = [controller.submit(patient(name), 0.0) for name in "abc"]
    assert words(decisions) == ["a admit", "b admit", "c enqueue concurrency"]
    controller.release("a", 1.0)
    assert words(controller.take_verdicts()) == ["c admit"]


def test_the_queue_has_fifty_places_an_engine_unless_stated() -> None:
    """Where nobody states a bound there are 50 places for each engine, and those of one while there is none."""
    controller = pool(engines=3, queue_len=None)
    assert controller.snapshot(0.0).queue_len_max == 150
    controller.set_engines_alive(0, 0.0)
    assert controller.snapshot(0.0).queue_len_max == 50
    assert pool(engines=3, queue_len=7).snapshot(0.0).queue_len_max == 21
