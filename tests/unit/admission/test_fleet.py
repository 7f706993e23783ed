"""The engines of a pool: their shares by what their answers say, and the order in which they are welcome."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.fleet import Fleet
from tidegate.admission.ledger import Booking
from tidegate.admission.limits import Limits
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.step_model import PRIOR, StepModel, Window

from .builders import cost, outcome

UNREACHED = "upstream_reset_before_response_started{connection_failure}"
NAMES = ("a", "b", "c")


def fleet(*names: str, count: int = 1, ramp: bool = False, **facts: Any) -> Fleet:
    """Engines that the controller chooses among, or without names one pool of `count`."""
    defaults: dict[str, Any] = {"now_s": 0.0, "model_of": StepModel}
    return Fleet(Limits(slots=100), count=count, names=names, ramp=ramp, **(defaults | facts))


def ended(ending: Ending, engine: str, **facts: Any) -> Outcome:
    return outcome(engine=engine, ending=ending, **facts)


def unreached(engine: str) -> Outcome:
    return ended(Ending.ENGINE_FAILED, engine, details=UNREACHED)


def shares(kept: Fleet, now_s: float = 0.0) -> list[float]:
    kept.advance(now_s)
    return [book.share for book in kept.books]


def up(kept: Fleet) -> list[str]:
    return [book.name for book in kept.up()]


# one engine, by its answers


def test_a_failed_connection_takes_an_engine_down() -> None:
    """It gets nothing for a second and a probe for another, then a quarter, and in ten all; the others are no worse."""
    kept = fleet(*NAMES)
    kept.judge(unreached("b"), 0.0)
    assert shares(kept) == [1.0, 0.0, 1.0]
    assert (list(kept.down()), sorted(up(kept))) == (["b"], ["a", "c"])
    assert shares(kept, 0.99)[1] == 0.0
    assert [shares(kept, at_s)[1] for at_s in (1.0, 2.0, 7.0, 12.0)] == pytest.approx([0.01, 0.25, 0.625, 1.0])


@pytest.mark.parametrize("ending", [Ending.COMPLETE, Ending.REJECTED, Ending.BAD_REQUEST, Ending.CLIENT_CANCELLED])
def test_what_is_no_fault_of_the_engine(ending: Ending) -> None:
    """An answer, a refusal of ours, a bad request and a client that left change no share."""
    kept = fleet(*NAMES)
    for _ in range(20):
        kept.judge(ended(ending, "a"), 0.0)
    assert shares(kept) == [1.0, 1.0, 1.0]


def test_a_single_failure_changes_nothing() -> None:
    """Some requests fail wherever they are sent; two in a row and a success do not take it down either, three do."""
    kept = fleet(*NAMES)
    for _ in range(5):
        kept.judge(ended(Ending.ENGINE_FAILED, "a"), 0.0)
        kept.judge(ended(Ending.ENGINE_FAILED, "a"), 0.0)
        kept.judge(ended(Ending.COMPLETE, "a"), 0.0)
        assert shares(kept) == [1.0, 1.0, 1.0]
    for _ in range(3):
        kept.judge(ended(Ending.ENGINE_FAILED, "a"), 0.0)
    assert shares(kept) == [0.0, 1.0, 1.0]


def test_an_engine_that_refuses_gets_less() -> None:
    """Half as much at once, at most once a second."""
    kept = fleet(*NAMES)
    for _ in range(3):
        kept.judge(ended(Ending.ENGINE_REFUSED, "a"), 0.0)
    assert shares(kept) == [0.5, 1.0, 1.0]


def test_an_engine_that_only_refuses_has_failed() -> None:
    """From the fifth refusal in a row on each is a failure, and three of these take it down; a success counts anew."""
    kept = fleet(*NAMES)
    for _ in range(4):
        kept.judge(ended(Ending.ENGINE_REFUSED, "a"), 0.0)
    kept.judge(ended(Ending.COMPLETE, "a"), 0.0)
    for _ in range(6):
        kept.judge(ended(Ending.ENGINE_REFUSED, "a"), 0.0)
    assert list(kept.down()) == []
    kept.judge(ended(Ending.ENGINE_REFUSED, "a"), 0.0)
    assert list(kept.down()) == ["a"]


def test_an_engine_that_falls_silent_has_failed() -> None:
    """Clients that left after 8 s without a byte: three in a row. Those that left sooner say nothing."""
    kept = fleet(*NAMES)
    for _ in range(10):
        kept.judge(ended(Ending.CLIENT_CANCELLED, "a"), 0.0, silent_s=7.9)
    assert list(kept.down()) == []
    for _ in range(3):
        kept.judge(ended(Ending.CLIENT_CANCELLED, "a"), 0.0, silent_s=8.0)
    assert list(kept.down()) == ["a"]


def test_the_last_engine_is_not_taken_out_for_its_answers() -> None:
    """A client that provokes errors must not close a pool: what answers keeps a quarter of its share."""
    kept = fleet("a", "b")
    kept.judge(unreached("b"), 0.0)
    for _ in range(3):
        kept.judge(ended(Ending.ENGINE_FAILED, "a"), 0.0)
    assert shares(kept) == [0.25, 0.0]
    kept.judge(ended(Ending.COMPLETE, "a"), 0.5)
    assert shares(kept, 0.5) == [0.25, 0.0]
    alone = fleet("a")
    alone.judge(unreached("a"), 0.0)
    assert (shares(alone), up(alone)) == ([0.0], [])


# a pool among whose engines Envoy chooses


def test_a_pool_is_short_of_the_engine_that_is_lost() -> None:
    """One of four down is a quarter less, one at half an eighth."""
    kept = fleet(count=4)
    for name in "abcd":
        kept.judge(ended(Ending.COMPLETE, name), 0.0)
    kept.judge(unreached("a"), 0.0)
    assert shares(kept) == [0.75]
    kept.judge(ended(Ending.ENGINE_REFUSED, "b"), 0.0)
    assert shares(kept) == [0.625]
    assert shares(kept, 2.0) == pytest.approx([1.0 - (0.75 + 0.4) / 4.0])
    assert shares(kept, 20.0) == [1.0]


def test_more_engines_seen_than_told() -> None:
    """Where a pool was told of one and five answer, it is short of a fifth."""
    kept = fleet(count=1)
    for name in "abcde":
        kept.judge(ended(Ending.COMPLETE, name), 0.0)
    kept.judge(unreached("a"), 0.0)
    assert shares(kept) == [0.8]


def test_fewer_engines_seen_than_told() -> None:
    """Those not heard of are well."""
    kept = fleet(count=10)
    kept.judge(unreached("a"), 0.0)
    assert shares(kept) == [0.9]


def test_an_address_not_heard_of_for_five_minutes_is_no_engine() -> None:
    """Of five that answered long ago four have gone: what is lost is half of the two that are left."""
    kept = fleet(count=2)
    for name in "abcde":
        kept.judge(ended(Ending.COMPLETE, name), 0.0)
    kept.advance(400.0)
    kept.judge(unreached("a"), 400.0)
    assert shares(kept, 400.0) == [0.5]


def test_a_pool_of_which_nothing_is_left() -> None:
    """Where every engine that was seen cannot be reached, nobody is sent there."""
    kept = fleet(count=2)
    for name in "ab":
        kept.judge(unreached(name), 0.0)
    assert (shares(kept), kept.up()) == ([0.0], ())
    kept.advance(1.0)
    assert (kept.books[0].share, len(kept.up())) == (pytest.approx(0.01), 1)
    kept.advance(2.0)
    assert (kept.books[0].share, len(kept.up())) == (0.25, 1)


def test_addresses_are_bounded() -> None:
    """However many the log names; whoever was heard of last is remembered."""
    kept = fleet(count=1)
    for number in range(1200):
        kept.judge(unreached(str(number)), 0.0)
    assert 1 < len(list(kept.down())) <= 512
    assert "1199" in list(kept.down())
    assert "0" not in list(kept.down())


# start, outage, and what changes when


def test_a_start_is_a_quarter_and_rises() -> None:
    """To all of the limits within ten seconds, in steps of a tenth of a second, for all engines."""
    kept = fleet(*NAMES, ramp=True)
    assert shares(kept) == [0.25] * 3
    assert kept.next_change_s() == pytest.approx(0.1)
    assert shares(kept, 5.0) == [0.625] * 3
    assert shares(kept, 10.0) == [1.0] * 3
    assert kept.next_change_s() is None


def test_a_share_is_the_ramp_times_the_health() -> None:
    """An engine on trial during a start has a quarter of what the others have."""
    kept = fleet(*NAMES, ramp=True)
    kept.judge(unreached("a"), 0.0)
    assert shares(kept, 5.0) == pytest.approx([0.625 * (0.25 + 0.75 * 0.3), 0.625, 0.625])


def test_after_an_outage_of_all_it_starts_again() -> None:
    """Engines that come back are cold; a pool that never was without any goes on as it was."""
    kept = fleet(count=2, ramp=True)
    kept.set_alive(1, 20.0)
    assert shares(kept, 20.0) == [1.0]
    kept.set_alive(0, 21.0)
    assert (kept.width, kept.up()) == (0, ())
    kept.set_alive(2, 30.0)
    assert (kept.width, shares(kept, 30.0)) == (2, [0.25])
    assert shares(kept, 40.0) == [1.0]


def test_engines_that_are_alive_are_what_the_book_stands_for() -> None:
    """Of a pool, its capacity follows their number; less than none are none."""
    kept = fleet(count=3)
    assert kept.books[0].slots == 300
    kept.set_alive(2, 0.0)
    assert kept.books[0].slots == 200
    kept.set_alive(-1, 0.0)
    assert kept.width == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.05, 0.7, 3.0, 31.0]),
            st.sampled_from(Ending),
            st.sampled_from(["a", "b", "c", "d"]),
            st.booleans(),
        ),
        max_size=60,
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_share_changes_at_the_moments_it_names(
    events: list[tuple[float, Ending, str, bool]], steered: bool, ramp: bool
) -> None:
    """Whatever the answers: shares are from 0 to 1, between two moments time alone changes none, and left alone all are
    whole again within 45 s.
    """
    kept, now_s = fleet(*(NAMES if steered else ()), count=3, ramp=ramp), 0.0
    for step_s, ending, engine, connect in events:
        now_s += step_s
        kept.advance(now_s)
        kept.judge(ended(ending, engine, details=UNREACHED if connect else ""), now_s, silent_s=9.0)
        before, change_s = shares(kept, now_s), kept.next_change_s()
        assert all(0.0 <= share <= 1.0 for share in before)
        if change_s is not None and change_s > now_s:
            assert shares(kept, now_s + 0.99 * (change_s - now_s)) == before
            now_s += 0.99 * (change_s - now_s)
    assert all(share == 1.0 for share in shares(kept, now_s + 45.0))
    assert kept.next_change_s() is None


# where a request goes


def test_the_most_welcome_first() -> None:
    """Whoever has the least to prefill, then the fewest sequences; of equals the first named."""
    kept = fleet(*NAMES)
    assert up(kept) == ["a", "b", "c"]
    kept.named("a").admit("1", cost(prompt_tokens=4000.0), 0.0)
    kept.named("b").admit("2", cost(prompt_tokens=2000.0), 0.0)
    assert up(kept) == ["c", "b", "a"]
    kept.advance(10.0)
    assert up(kept) == ["c", "b", "a"]  # all prompts are done: the one that holds least, then the others by the same
    for number in range(60):
        kept.named("c").admit(f"c{number}", cost(prompt_tokens=1.0), 10.0)
    kept.advance(20.0)
    assert up(kept) == ["b", "a", "c"]


def test_an_engine_that_nobody_named() -> None:
    """Its book is the first one: where Envoy chooses there is no other."""
    kept = fleet(*NAMES)
    assert kept.named("b").name == "b"
    assert kept.named("stranger") is kept.books[0]


def test_prices_are_made_with_an_engine_that_is_up() -> None:
    """Of several the one with the largest share."""
    kept = fleet(*NAMES)
    assert kept.reference.name == "a"
    kept.judge(unreached("a"), 0.0)
    assert kept.reference.name == "b"


def test_what_runs_since_before_a_restart() -> None:
    """It takes up the least loaded book until it has ended; a stranger's end changes nothing."""
    kept = fleet("a", "b")
    kept.named("a").admit("1", cost(), 0.0)
    for work_id in ("o1", "o2"):
        kept.adopt(work_id, Booking(sequences=2, kv_tokens=100), 0.0)
    assert [(book.name, book.sequences) for book in kept] == [("a", 3), ("b", 2)]
    for work_id in ("o1", "o1", "stranger"):
        kept.forget_orphan(work_id, 1.0)
    assert [(book.name, book.sequences) for book in kept] == [("a", 3), ("b", 0)]


def test_first_tokens_are_seen_by_all_or_none() -> None:
    """From the first one that is reported on, every engine waits for them at 95 %."""
    kept = fleet("a", "b")
    before = kept.sees_first_tokens
    kept.see_first_tokens()
    kept.named("b").admit("1", cost(prompt_tokens=100.0), 0.0)
    kept.advance(60.0)
    assert (before, kept.sees_first_tokens) == (False, True)
    assert kept.named("b").prefilling


def test_what_is_learned_is_kept_by_name() -> None:
    """After a restart an engine has its own step time, and one that was not there before the prior."""
    before, after = fleet("a", "b"), fleet("b", "c")
    for _ in range(20):
        window = Window(seconds=2.0, steps=20.0, tokens=400.0, kv_token_steps=1e6, attention=0.0)
        before.named("b").model.learn(window)
    after.restore(before.dump())
    assert after.named("b").model.theta == before.named("b").model.theta != PRIOR
    assert after.named("c").model.theta == PRIOR
    with pytest.raises(ValueError, match="record"):
        after.restore({"b": "nonsense"})


def test_estimates_are_those_of_all_engines() -> None:
    """One row a request, wherever it runs."""
    kept = fleet("a", "b")
    for name, log_mean in (("a", 2.0), ("b", 3.0), ("b", 4.0)):
        kept.named(name).admit(f"{name}{log_mean}", cost(estimate=(log_mean, 0.5)), 0.0)
    means, sigmas, tokens = kept.estimates()
    assert (means.tolist(), sigmas.tolist(), tokens.tolist()) == ([2.0, 3.0, 4.0], [0.5] * 3, [0.0] * 3)
    assert [len(column) for column in fleet(count=2).estimates()] == [0, 0, 0]


def test_prompts_are_paced_for_the_latest_request() -> None:
    """Its objective counts in every engine."""
    kept = fleet("a", "b")
    kept.pace(0.05)
    assert [book.tpot_target_s for book in kept] == [0.05, 0.05]
    assert all(book.prefill_allowance(book.tpot_target_s)[0] < inf for book in kept)
