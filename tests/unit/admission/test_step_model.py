"""The step model: that it finds an engine's speed from any start, and that nothing it is told does lasting harm."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.admission.step_model import PRIOR, StepModel, Theta, Window
from tidegate.sim.profiles import PROFILES

SECONDS = Callable[[float, float, float], float]  # tokens, KV tokens, attention of a step -> how long it takes
BATCHED_TOKENS = 1024
KV_EACH = 1200.0


def linear(base: float, token: float, kv_token: float, attention: float) -> SECONDS:
    """An engine whose coefficients are these multiples of the prior."""
    theta = Theta(*(factor * prior for factor, prior in zip((base, token, kv_token, attention), PRIOR, strict=True)))
    return lambda tokens, kv, pairs: (
        theta.base_s + theta.token_s * tokens + theta.kv_token_s * kv + theta.attention_s * pairs
    )


def profile(name: str, slower: float = 1.0) -> SECONDS:
    cost = PROFILES[name].slowed(slower).cost
    return lambda tokens, kv, pairs: cost.seconds(int(tokens), int(kv), pairs)


def drive(seconds: SECONDS, count: int, *, seed: int = 0) -> list[Window]:
    """Windows of a second of an engine whose batch wanders and into which prompts of all lengths come."""
    rng = np.random.default_rng(seed)
    windows, decoding, left, context = [], rng.uniform(10, 200), 0.0, 0.0
    for _ in range(count):
        took = steps = tokens = kv = pairs = 0.0
        busy = rng.uniform(0.0, 1.0)  # share of this window's steps that prefill
        while took < 1.0 or steps < 4:
            decoding = float(np.clip(decoding + rng.normal(0.0, 3.0), 10, 200))
            n = float(int(decoding))
            if left <= 0.0 and rng.random() < busy * (BATCHED_TOKENS - n) / 1100.0:
                left, context = float(min(np.exp(rng.normal(6.5, 1.0)), 32_000.0)), 0.0
            chunk = min(left, BATCHED_TOKENS - n)
            attention = chunk * (context + chunk / 2.0)
            context, left = context + chunk, left - chunk
            took += seconds(n + chunk, n * KV_EACH, attention)
            steps, tokens, kv, pairs = steps + 1.0, tokens + n + chunk, kv + n * KV_EACH, pairs + attention
        windows.append(Window(seconds=took, steps=steps, tokens=tokens, kv_token_steps=kv, attention=pairs))
    return windows


def error(model: StepModel, windows: list[Window]) -> float:
    """Mean relative error of the prediction."""
    return float(np.mean([abs(model.predict_s(window) / window.seconds - 1.0) for window in windows]))


def taught(windows: list[Window]) -> StepModel:
    model = StepModel()
    for window in windows:
        assert model.learn(window)
    return model


def slowed(window: Window, factor: float) -> Window:
    return msgspec.structs.replace(window, seconds=window.seconds * factor)


def test_it_begins_with_the_prior() -> None:
    """Before the first window a step is what the prior says, and prefill gets what decoding leaves of the budget."""
    model = StepModel()
    assert (model.theta, model.gain, model.windows) == (PRIOR, 1.0, 0.0)
    step_s = 0.02 + 5e-5 * 300 + 5e-8 * 1e5 + 2e-9 * 1e6
    assert model.step_s(100, 200, 1e5, 1e6) == pytest.approx(step_s)
    assert model.prefill_tokens_per_s(24, 1e5, 1024) == pytest.approx(1000 / (0.02 + 5e-5 * 1024 + 5e-8 * 1e5))


def test_prefill_has_a_budget_of_one_token_at_least() -> None:
    """More sequences than the budget holds leave prefill one token a step."""
    model = StepModel()
    assert model.prefill_tokens_per_s(300, 0.0, 256) == pytest.approx(1.0 / model.step_s(300, 1, 0.0))


@pytest.mark.parametrize(
    ("seconds", "bound"),
    [
        (linear(5, 5, 5, 5), 0.01),
        (linear(0.2, 0.2, 0.2, 0.2), 0.01),
        (linear(5, 0.2, 5, 0.2), 0.05),
        (linear(0.2, 5, 0.2, 5), 0.05),
        (profile("llama-70b-4xh100"), 0.05),
        (profile("llama-70b-4xh100", 5.0), 0.05),
        (profile("llama-70b-4xh100", 0.2), 0.05),
        (profile("llama-8b-h100"), 0.06),
        (profile("llama-8b-a100", 5.0), 0.05),
        (profile("llama-8b-a100", 0.2), 0.05),
    ],
    ids=lambda value: "" if callable(value) else None,
)
def test_thirty_windows_teach_an_engine_five_times_off(seconds: SECONDS, bound: float) -> None:
    """After 30 windows what follows is predicted within a few percent, wherever the prior lay."""
    errors = []
    for seed in range(3):
        windows = drive(seconds, 50, seed=seed)
        errors.append(error(taught(windows[:30]), windows[30:]))
    assert np.mean(errors) < bound


@pytest.mark.parametrize("slower", [0.2, 1.0, 5.0])
def test_ten_windows_already_give_the_level(slower: float) -> None:
    """A third of that is enough to be within 6 %, and the prefill rate and the decode step are within 15 %."""
    seconds = profile("llama-70b-4xh100", slower)
    windows = drive(seconds, 30)
    model = taught(windows[:10])
    assert error(model, windows[10:]) < 0.06
    kv = 100 * KV_EACH
    assert model.step_s(100, 0, kv) == pytest.approx(seconds(100, kv, 0.0), rel=0.15)
    assert model.step_s(100, 924, kv) == pytest.approx(seconds(1024, kv, 0.0), rel=0.15)


def test_noise_on_every_figure_does_not_hurt_much() -> None:
    """A tenth of noise on times and token counts, and more on pairs, leaves the error below a tenth."""
    rng = np.random.default_rng(5)
    windows = drive(profile("llama-70b-4xh100", 5.0), 60)

    def noisy(window: Window) -> Window:
        a, b, c, d = np.exp(rng.normal(0.0, (0.1, 0.05, 0.1, 0.3))).tolist()
        return Window(
            seconds=window.seconds * a,
            steps=window.steps,
            tokens=window.tokens * b,
            kv_token_steps=window.kv_token_steps * c,
            attention=window.attention * d,
        )

    assert error(taught([noisy(window) for window in windows[:40]]), windows[40:]) < 0.1


def test_columns_that_move_together_keep_the_priors_proportions() -> None:
    """Where all windows are alike only the level can be learned, and every coefficient moves by the same factor."""
    window = Window(seconds=3.0, steps=40, tokens=4000, kv_token_steps=4e6, attention=1e7)
    model = taught([window] * 60)
    level = window.seconds / StepModel().predict_s(window)
    assert model.predict_s(window) == pytest.approx(window.seconds, rel=0.01)
    assert [th / prior for th, prior in zip(model.theta, PRIOR, strict=True)] == pytest.approx([level] * 4, rel=0.2)


def test_what_never_came_scales_with_the_rest() -> None:
    """Windows without prompts say nothing of token pairs; a slow engine is taken to be slow at them too."""
    windows = [msgspec.structs.replace(window, attention=0.0) for window in drive(linear(4, 4, 4, 0), 40)]
    assert taught(windows).theta.attention_s == pytest.approx(4 * PRIOR.attention_s, rel=0.1)


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_a_sudden_change_of_speed(factor: float) -> None:
    """The gain takes up most of it within five windows; then the coefficients have it, and the gain is 1 again."""
    windows = drive(profile("llama-70b-4xh100"), 110)
    model = taught(windows[:60])
    changed = [slowed(window, factor) for window in windows[60:]]
    before = error(model, changed[:1])
    for window in changed[:5]:
        model.learn(window)
    assert model.gain != 1.0
    assert error(model, changed[5:15]) < min(0.25, before)
    for window in changed[5:25]:
        model.learn(window)
    assert model.gain == 1.0
    assert error(model, changed[25:]) < 0.1


def test_a_change_that_passes() -> None:
    """An engine slow for five windows is predicted as before, within 5 %, twenty windows later."""
    windows = drive(profile("llama-70b-4xh100"), 110)
    model = taught(windows[:60])
    for window in windows[60:65]:
        model.learn(slowed(window, 3.0))
    for window in windows[65:85]:
        model.learn(window)
    assert error(model, windows[85:]) < 0.05


def test_a_factor_of_six_is_believed_from_the_third_window_on() -> None:
    """What looks like a stall twice and then again is the engine's new speed."""
    windows = drive(profile("llama-70b-4xh100"), 100)
    model = taught(windows[:60])
    changed = [slowed(window, 6.0) for window in windows[60:]]
    for window in changed[:2]:
        model.learn(window, seconds_max=20.0)
    assert model.gain == 1.0
    for window in changed[2:16]:
        model.learn(window, seconds_max=20.0)
    assert error(model, changed[16:]) < 0.1


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"seconds": 5.9}, 0.03),
        ({"seconds": 0.001}, 0.03),
        ({"tokens": 1e14}, 0.03),
        ({"tokens": 1e6, "steps": 600}, 0.03),
        ({"kv_token_steps": 1e15}, 0.03),
        ({"attention": 1e15}, 0.03),
        ({"tokens": 0.0, "kv_token_steps": 0.0}, 0.08),  # as long as it should be: nothing shows that it is wrong
    ],
)
def test_one_odd_window_does_no_lasting_harm(change: dict[str, float], moved: float) -> None:
    """A stall or a counter's jump hardly moves the next prediction, and ten windows later it is gone."""
    windows = drive(profile("llama-70b-4xh100"), 80)
    model = taught(windows[:40])
    before = model.predict_s(windows[41])
    assert model.learn(msgspec.structs.replace(windows[40], **change))
    assert model.predict_s(windows[41]) == pytest.approx(before, rel=moved)
    for window in windows[41:51]:
        model.learn(window)
    assert error(model, windows[51:]) < 0.04


@pytest.mark.parametrize("change", [{"seconds": 5.9}, {"tokens": 1e6, "steps": 600}])
def test_an_odd_first_window_is_forgotten(change: dict[str, float]) -> None:
    """Even as the very first, before anything is known, it is gone after ten windows."""
    windows = drive(profile("llama-70b-4xh100"), 40)
    model = taught([msgspec.structs.replace(windows[0], **change), *windows[1:11]])
    assert error(model, windows[11:]) < 0.1


@pytest.mark.parametrize(
    "change",
    [
        *[
            {name: value}
            for name in ("seconds", "steps", "tokens", "attention", "weight")
            for value in (nan, inf, -1.0)
        ],
        {"seconds": 0.0},
        {"seconds": 0.0009},
        {"seconds": 6.1},
        {"steps": 3.0},
        {"weight": 0.0},
        {"kv_token_steps": 1e16},
    ],
)
def test_what_teaches_nothing(change: dict[str, float]) -> None:
    """A window that is no window, too short to be measured or too long to be one, leaves the model alone."""
    windows = drive(linear(2, 2, 2, 2), 11)
    model = taught(windows[:10])
    before = model.dump()
    assert not model.learn(msgspec.structs.replace(windows[10], **change))
    assert model.dump() == before


def test_longer_windows_must_be_asked_for() -> None:
    """Windows taken from outcomes may be longer, up to two minutes."""
    window = Window(seconds=30.0, steps=1000, tokens=1e5, kv_token_steps=1e8, attention=1e8, weight=0.1)
    model = StepModel()
    assert not model.learn(window)
    assert model.learn(window, seconds_max=60.0)
    assert model.windows == 0.1
    assert not model.learn(msgspec.structs.replace(window, seconds=121.0), seconds_max=1e9)


def test_light_windows_teach_as_much_as_they_weigh() -> None:
    """Three hundred windows that weigh a tenth each teach what thirty do."""
    seconds = profile("llama-70b-4xh100", 5.0)
    light = [msgspec.structs.replace(window, weight=0.1) for window in drive(seconds, 300)]
    model = taught(light)
    assert model.windows == pytest.approx(30.0)
    assert error(model, drive(seconds, 20, seed=9)) < 0.05


def test_dump_and_restore() -> None:
    """A model restored from a dump, through JSON, predicts and goes on learning exactly as the one it came from."""
    windows = drive(profile("llama-8b-a100"), 60)
    model, again = taught([*windows[:40], *(slowed(window, 3.0) for window in windows[40:44])]), StepModel()
    again.restore(msgspec.json.decode(msgspec.json.encode(model.dump())))
    assert (again.theta, again.gain, again.windows) == (model.theta, model.gain, model.windows)
    assert again.predict_s(windows[50]) == model.predict_s(windows[50])


@pytest.mark.parametrize(
    "damage",
    [
        {"windows": -1.0},
        {"windows": "many"},
        {"windows": None},
        {"gain": 9.0},
        {"gain": nan},
        {"gram": [[1.0, 2.0], [2.0, 1.0]]},
        {"gram": "gram"},
        {"gram": (np.eye(4) + np.eye(4, k=1)).tolist()},
        {"gram": (np.eye(4) + 3.0 * (1.0 - np.eye(4))).tolist()},
        {"gram": (-np.eye(4)).tolist()},
        {"gram": (1e12 * np.eye(4)).tolist()},
        {"moment": [1.0, 2.0, 3.0]},
        {"moment": [1.0, 2.0, 3.0, inf]},
        {"moment": [1.0, 2.0, 3.0, -1.0]},
        {"moment": [1, [2], 3, 4]},
    ],
)
def test_a_damaged_record_changes_nothing(damage: dict[str, Any]) -> None:
    """ValueError, and the model is as it was."""
    model = taught(drive(profile("llama-8b-h100"), 10))
    before = model.dump()
    with pytest.raises(ValueError, match=r"\w"):
        model.restore({**before, **damage})
    for name in before:
        with pytest.raises(ValueError, match=name):
            model.restore({key: value for key, value in before.items() if key != name})
    assert model.dump() == before


figures = st.floats() | st.floats(0.0, 1e16) | st.sampled_from([0.0, 1e-300, 1.0, 40.0, 1e15])


@settings(max_examples=200, deadline=None)
@given(
    windows=st.lists(
        st.builds(
            Window,
            seconds=st.floats(0.0, 7.0) | figures,
            steps=st.floats(0.0, 100.0) | figures,
            tokens=figures,
            kv_token_steps=figures,
            attention=figures,
            weight=st.sampled_from([1.0, 0.05, 10.0]) | figures,
        ),
        max_size=30,
    )
)
def test_whatever_it_is_told_it_stays_within_bounds(windows: list[Window]) -> None:
    """Coefficients stay within a factor of 8 of the prior, the gain within 4, and a dump can always be restored."""
    model = StepModel()
    for window in windows:
        model.learn(window, seconds_max=120.0)
        assert all(0.124 <= th / prior <= 8.01 for th, prior in zip(model.theta, PRIOR, strict=True))
        assert 0.25 <= model.gain <= 4.0
        assert 0.0 < model.step_s(0, 1, 0) < inf
    again = StepModel()
    again.restore(model.dump())
    assert again.theta == pytest.approx(model.theta, rel=1e-6)
