"""The guard over the n-grams: it falls back when predictions drift off, says so, and comes back."""

import struct
from array import array
from math import exp, log, nan
from random import Random

import pytest

from tidegate_estimator import CompletionRequest, Message, NgramEstimator, Source, model_file
from tidegate_estimator.guarded import KEYS_MAX, MODELS_MAX, Drift, GuardedEstimator, drifts_of
from tidegate_estimator.history import History


def request(tenant: str, number: int, **facts: int) -> CompletionRequest:
    message = Message(role="user", text=f"tell me about number {number}")
    return CompletionRequest(tenant=tenant, model="m", messages=(message,), prompt_chars=30, **facts)


class World:
    """Two tenants of one model whose answers have a median length each."""

    def __init__(self, **medians: float) -> None:
        self.estimator = GuardedEstimator()
        self.medians = medians
        self._random = Random(1)

    def run(self, answers: int) -> list[Source]:
        """So many answers of each tenant; the sources of the first one's estimates."""
        sources = []
        for number in range(answers):
            for tenant, median in self.medians.items():
                estimate = self.estimator.estimate(request(tenant, number))
                tokens = max(1, round(exp(log(median) + 0.3 * self._random.gauss(0.0, 1.0))))
                assert self.estimator.learn(estimate.ticket, tokens, "stop")
                if tenant == next(iter(self.medians)):
                    sources.append(estimate.source)
        return sources


def test_good_predictions_are_left_alone() -> None:
    """Over two thousand answers of a steady tenant the guard never speaks."""
    world = World(steady=200.0, other=20.0)
    assert set(world.run(2000)) <= {Source.PRIOR, Source.GLOBAL, Source.TENANT_MODEL}


def test_a_silent_change_of_the_model_is_bridged() -> None:
    """Within twenty answers of a change the wider source speaks, and once the n-grams have learned it they do again."""
    world = World(changed=400.0, other=20.0)
    world.run(600)
    world.medians["changed"] = 20.0
    sources = world.run(200)
    assert Source.WIDER in sources[:20]
    assert set(sources[100:]) == {Source.TENANT_MODEL}
    assert world.estimator.estimate(request("changed", 1)).p50 == pytest.approx(20.0, rel=0.4)


def adrift(estimator: GuardedEstimator) -> GuardedEstimator:
    """With a tenant adrift, and a model that answers twenty tokens."""
    world = World(changed=400.0, other=20.0)
    world.estimator = estimator
    world.run(600)
    world.medians["changed"] = 20.0
    world.run(20)
    assert estimator.estimate(request("changed", 1)).source is Source.WIDER
    return estimator


def test_the_wider_source_respects_what_the_caller_says() -> None:
    """Caps, several sequences and a forced length hold whoever speaks."""
    estimator = adrift(GuardedEstimator())
    assert estimator.estimate(request("changed", 1, max_tokens=5)).p95 == 5.0
    one, four = (estimator.estimate(request("changed", 1, sequences=n)) for n in (1, 4))
    assert four.p50 == pytest.approx(4.0 * one.p50)
    assert one.p50 <= one.p80 <= one.p90 <= one.p95
    forced = request("changed", 1, max_tokens=64, min_tokens=64)
    assert estimator.estimate(forced).source is Source.CAP


def test_a_wider_source_that_is_worse_keeps_silent() -> None:
    """A tenant that changes to what nobody else's answers are like is left to its own n-grams."""
    world = World(changed=400.0, other=20.0)
    world.run(600)
    world.medians["changed"] = 8000.0
    assert Source.WIDER not in world.run(60)


@pytest.fixture(scope="module")
def state() -> bytes:
    """Of an estimator with a tenant adrift."""
    return adrift(GuardedEstimator()).dump()


def loaded(state: bytes) -> GuardedEstimator:
    estimator = GuardedEstimator()
    estimator.load(state)
    return estimator


def test_who_is_on_the_wider_source_survives_a_restart() -> None:
    """The next process predicts for a tenant adrift what this one would, by the same source."""
    before = adrift(GuardedEstimator())
    after = loaded(before.dump())
    for tenant in ("changed", "other", "unknown"):
        one, other = before.estimate(request(tenant, 1)), after.estimate(request(tenant, 1))
        assert other.source is one.source
        assert (other.p50, other.p90) == pytest.approx((one.p50, one.p90), rel=0.005)
    wide = before.estimate(request("changed", 1))
    assert wide.source is Source.WIDER
    assert after.estimate(request("changed", 1)).p50 == wide.p50, "the wider source is kept whole"
    assert after.dump() == before.dump()


def test_it_finds_back_after_a_restart_as_it_would_have_without(state: bytes) -> None:
    """The first answers after a restart go on with what was counted before it."""
    world = World(changed=20.0, other=20.0)
    world.estimator = loaded(state)
    sources = world.run(100)
    assert sources[0] is Source.WIDER
    assert set(sources[60:]) == {Source.TENANT_MODEL}


def test_a_file_without_a_guard_loads_and_the_guard_begins_anew(state: bytes) -> None:
    """The n-grams' own file, as an older release or `estimator train` wrote it, gives the same n-grams."""
    ngrams = NgramEstimator()
    ngrams.load(state)
    estimator = loaded(state)
    estimator.load(ngrams.dump())
    assert estimator.estimate(request("changed", 1)) == ngrams.estimate(request("changed", 1))
    assert estimator.estimate(request("changed", 1)).source is Source.TENANT_MODEL
    assert drifts_of(ngrams.dump()) == {}
    assert loaded(estimator.dump()).dump() == estimator.dump()


def test_the_n_grams_alone_read_a_file_with_a_guard(state: bytes) -> None:
    """What the service saved can be evaluated and trained on."""
    ngrams, _ = model_file.split(state)
    estimator = NgramEstimator()
    estimator.load(state)
    assert estimator.dump() == ngrams


@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 24, 40, 60, 70, 400, -3000, -1])
def test_any_changed_bit_is_refused_and_nothing_changes(state: bytes, at: int) -> None:
    """Head, guard and n-grams are all checked before any of them is taken over."""
    damaged = bytearray(state)
    damaged[at] ^= 1
    estimator = loaded(state)
    with pytest.raises(ValueError, match="estimator state"):
        estimator.load(bytes(damaged))
    assert estimator.dump() == state


@pytest.mark.parametrize("size", [0, 10, 16, 20, 60, 500, -1])
def test_a_file_cut_short_is_refused(state: bytes, size: int) -> None:
    """Wherever it ends, in the head, in the guard or in the n-grams."""
    with pytest.raises(ValueError, match="estimator state"):
        GuardedEstimator().load(state[:size])


@pytest.mark.parametrize(
    "guard",
    [
        b"",
        struct.pack("<II", 0, 0),
        struct.pack("<II", 1, 0),
        struct.pack("<II", MODELS_MAX + 2, 0) + bytes(10 * (MODELS_MAX + 2)),
        struct.pack("<II", 1, KEYS_MAX + 1) + bytes(10 + 37 * (KEYS_MAX + 1)),
        struct.pack("<II", 2**32 - 1, 2**32 - 1) + bytes(100),
        struct.pack("<IIIIH", 1, 0, 0, 1, 1),
        struct.pack("<IIIIH257f", 1, 0, 0, 257, 257, *[1.0] * 257),
        struct.pack("<IIIIHf", 1, 0, 0, 1, 1, nan),
        struct.pack("<IIIIHf", 1, 0, 0, 1, 1, 33.0),
        struct.pack("<IIIIHf", 1, 0, 0, 1, 0, 1.0),
        struct.pack("<IIIIHQIBddd", 1, 1, 0, 0, 0, 7, 1, 2, 0.0, 0.0, 0.0),
        struct.pack("<IIIIHQIBddd", 1, 1, 0, 0, 0, 7, 1, 1, nan, 0.0, 0.0),
        struct.pack("<IIIIHQIBddd", 1, 1, 0, 0, 0, 7, 1, 1, 6.5, 0.0, 0.0),
        struct.pack("<IIIIHQIBddd", 1, 1, 0, 0, 0, 7, 1, 1, 0.0, -0.1, 0.0),
        struct.pack("<IIIIHQIBddd", 1, 1, 0, 0, 0, 7, 1, 1, 0.0, 0.0, 1e3),
    ],
)
def test_a_guard_that_cannot_be_is_refused(state: bytes, guard: bytes) -> None:
    """A part with a right check but with sizes or figures that are none of ours is not taken over."""
    estimator = loaded(state)
    with pytest.raises(ValueError, match=r"estimator state: the guard's"):
        estimator.load(model_file.join(model_file.split(state)[0], guard))
    assert estimator.dump() == state


def test_a_guard_that_can_be_is_taken_over(state: bytes) -> None:
    """The layout is the documented one: a part written by hand loads, and is what is saved again."""
    by_hand = struct.pack("<IIIIHQIBdddf", 1, 1, 0, 9, 1, 7, 30, 1, 1.5, 0.9, 0.2, 3.25)
    again = loaded(model_file.join(model_file.split(state)[0], by_hand)).dump()
    assert model_file.split(again)[1] == by_hand
    ((key, drift),) = drifts_of(again).items()
    assert (key, drift.answers, drift.adrift) == (7, 30, True)
    assert (drift.bias, drift.miss, drift.wider_miss) == (1.5, 0.9, 0.2)


def test_the_guards_part_is_bounded() -> None:
    """With as many tenants and models as there can be it takes less than 2 MB, and comes back whole, in order."""
    estimator = GuardedEstimator()
    for key in range(KEYS_MAX):
        drift = estimator._drifts[2**64 - 1 - key] = Drift()
        drift.take(key / KEYS_MAX, 0.5, 0.25)
    for model in range(MODELS_MAX):
        history = estimator._by_model[2**32 - 1 - model] = History(256)
        history.values = array("f", [model / 64] * 256)
        history.refresh()
    state = estimator.dump()
    again = loaded(state)
    assert len(state) < 2_000_000
    assert list(again._drifts) == list(estimator._drifts)
    assert list(again._by_model) == list(estimator._by_model)
    assert again.dump() == state


def test_a_snapshot_of_the_guard_is_of_its_moment(state: bytes) -> None:
    """Answers that come while the file is being written do not get into it."""
    world = World(changed=20.0, other=20.0)
    world.estimator = loaded(state)
    save = world.estimator.snapshot()
    world.run(20)
    assert save() == state != world.estimator.dump()


def test_answers_that_were_cut_say_nothing_about_drift() -> None:
    """A tenant whose answers are cut by its own cap is not taken to have drifted."""
    world = World(capped=400.0, other=20.0)
    world.run(300)
    for number in range(100):
        estimate = world.estimator.estimate(request("capped", number, max_tokens=16))
        world.estimator.learn(estimate.ticket, 16, "length")
    assert world.estimator.estimate(request("capped", 1)).source is Source.TENANT_MODEL


def test_tenants_are_bounded() -> None:
    """Invented tenants push each other out and nothing else."""
    estimator = GuardedEstimator()
    ticket = estimator.estimate(request("t", 1)).ticket
    estimator._drifts.update((key, Drift()) for key in range(KEYS_MAX))
    assert estimator.learn(ticket, 10, "stop")
    assert len(estimator._drifts) == KEYS_MAX
    assert 0 not in estimator._drifts


def test_drift_has_hysteresis() -> None:
    """It begins beyond 1.2 deviations and ends within 0.5."""
    drift = Drift()
    for _ in range(40):
        drift.take(1.3, 1.0, 0.5)
    assert drift.adrift
    for _ in range(5):
        drift.take(0.8, 1.0, 0.5)
    assert drift.adrift
    for _ in range(60):
        drift.take(0.0, 1.0, 0.5)
    assert not drift.adrift
