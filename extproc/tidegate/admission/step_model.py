"""How long an engine's step takes, learned from what it got done in a second or so.

    step_s = G (th0 + th1 tokens + th2 KV tokens read + th3 token pairs attended)

A window is S steps that took W seconds together; the model is linear, so its sums stand for the single steps. Theta is
the prior times u, from the ridge regression of box_ridge.py, of whose rows this is one:

    a = prior x (S, tokens, KV token-steps, token pairs) / N,   y = w / N,   v = weight x 0.985^(weight learned since)
    w = W / (G in force),   N = max(w, P) max(1, P / 5 w),   P predicted with G = 1
    w = W,                  N = w max(1, P / 5 w)^2          for the first 8 windows
    v x 0.1   if W > 4 predicted + 0.5 s or W < predicted / 5, unless the two windows before it said so too; no
              slow one is doubted before 3 windows, or an engine slower than the prior would have to wait

Dividing by N makes an error of a tenth count the same in a fast and in a slow window, gives a stalled one next to no
weight, and keeps one that was too fast to be true from ruling for minutes.

The fast gain follows what the coefficients, whose memory is 67 windows, have not taken up. r is clip(W / predicted with
G = 1, 1/4, 4); downwards 1/G moves so towards 1/r, or a recovery would take three times as long as a slow-down:

    G += 0.3 (r - G),   in force outside 0.85..1.18

What the coefficients learn is taken out of G in the same instant, so that their product never counts a change twice. A
gain in force for 8 windows is no passing thing: all of history is restated, W -> G W, and G starts again at 1.
Forgetting would take minutes: rows of an engine three times slower weigh a ninth of the old ones.

The input is engine time, never a wait in the gateway. Recursive least squares with forgetting was tried and diverged on
long prompts; a latency window cannot tell prefill from decode (see ADMISSION.md).
"""

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tidegate.admission.arrays import Floats, saved_array
from tidegate.admission.box_ridge import solve


class Theta(NamedTuple):
    """Seconds a step, a token of it, a KV token read in it, and a pair of tokens attended."""

    base_s: float
    token_s: float
    kv_token_s: float
    attention_s: float


PRIOR = Theta(0.02, 5e-5, 5e-8, 2e-9)

_DECAY = 0.985
_KNOWN = 8.0  # windows, by weight
_RESTATE_AFTER = 8.0
_SLOW, _SLOW_S, _FAST = 4.0, 0.5, 0.2
_OUTLIER_WEIGHT = 0.1
_OUTLIERS_BELIEVED = 3
_GAIN_RATE = 0.3
_GAIN_MIN, _GAIN_MAX = 0.25, 4.0
_UNUSED_MIN, _UNUSED_MAX = 0.85, 1.18
_STEPS_MIN = 4.0
_SECONDS_MIN, _SECONDS_MAX, _SECONDS_LIMIT = 1e-3, 6.0, 120.0
_WEIGHT_MAX = 10.0
_COUNT_MAX = 1e15  # beyond the token pairs of any window that can be true
_WINDOWS_MAX = 1e9
_MOMENT_MAX = 1e9  # of the sums: far above what 67 windows of any kind come to
_PRIOR = np.array(PRIOR)


class Window(Struct, frozen=True, kw_only=True, gc=False):
    """What one engine did in a stretch of time in which it was busy.

    Attributes:
        seconds: how long it was.
        steps: steps it made.
        tokens: tokens of those steps, decoded and prefilled.
        kv_token_steps: KV tokens held, summed over the steps.
        attention: token pairs, p^2 / 2 summed over the prompts of p tokens prefilled.
        weight: 1 for one that was counted; less for one that was inferred.
    """

    seconds: float
    steps: float
    tokens: float
    kv_token_steps: float
    attention: float
    weight: float = 1.0


class StepModel:
    """The model of one engine. Only `learn` and `restore` change it.

    Attributes:
        theta: the coefficients, each within 1/8 and 8 of the prior.
        gain: factor on all of them that is in force; 1 while they fit.
        windows: weight learned in all.
    """

    __slots__ = (
        "_attention_s",
        "_base_s",
        "_engaged",
        "_gram",
        "_kv_token_s",
        "_level",
        "_moment",
        "_outliers",
        "_token_s",
        "gain",
        "theta",
        "windows",
    )

    def __init__(self) -> None:
        self.windows = 0.0
        self._gram: Floats = np.zeros((4, 4))  # sum of v a a^T
        self._moment: Floats = np.zeros(4)  # sum of v a w / N
        self._level = 1.0  # the gain, in force or not
        self._engaged = 0.0  # weight of the windows in a row that found it in force
        self._outliers = 0  # outliers in a row; below 0 where they are too fast
        self._set(PRIOR)

    def step_s(self, decoding: float, prefill_tokens: float, kv_tokens: float, attention: float = 0.0) -> float:
        """Seconds of a step that decodes `decoding` sequences and prefills `prefill_tokens`.

        `kv_tokens` are read by the decoding sequences; `attention` are prefilled tokens times their mean context.
        """
        return (
            self._base_s
            + self._token_s * (decoding + prefill_tokens)
            + self._kv_token_s * kv_tokens
            + self._attention_s * attention
        )

    def prefill_tokens_per_s(self, decoding: float, kv_tokens: float, batched_tokens: float) -> float:
        """Prompt tokens a second while `decoding` sequences take their part of each step's `batched_tokens`."""
        budget_tokens = max(batched_tokens - decoding, 1.0)
        return budget_tokens / self.step_s(decoding, budget_tokens, kv_tokens)

    def predict_s(self, window: Window) -> float:
        """Seconds that the steps of `window` should have taken."""
        return self.gain * _seconds(self.theta, window)

    def learn(self, window: Window, seconds_max: float = _SECONDS_MAX) -> bool:
        """Take in one window of at most `seconds_max` (at most 120 s); False where it teaches nothing."""
        if not _usable(window, min(seconds_max, _SECONDS_LIMIT)):
            return False
        trust = self._trust(window)
        before_s = _seconds(self.theta, window)
        self._follow(window.seconds / before_s, min(window.weight, 1.0) * trust)
        self._absorb(window, before_s, trust)
        theta = _solved(self._gram, self._moment)
        self._take_out(before_s / _seconds(theta, window))
        self._set(self._restated(theta, window))
        self.windows = min(self.windows + window.weight, _WINDOWS_MAX)
        return True

    def dump(self) -> dict[str, object]:
        """What `restore` takes, in plain numbers."""
        return {
            "windows": self.windows,
            "gain": self._level,
            "gram": self._gram.tolist(),
            "moment": self._moment.tolist(),
        }

    def restore(self, record: Mapping[str, object]) -> None:
        """Take over what `dump` gave; ValueError, and no change, where it is damaged."""
        windows, level = saved_array(record, "windows", ()), saved_array(record, "gain", ())
        gram, moment = saved_array(record, "gram", (4, 4)), saved_array(record, "moment", (4,))
        if not 0.0 <= windows <= _WINDOWS_MAX or not _GAIN_MIN <= level <= _GAIN_MAX:
            raise ValueError(f"windows {windows}, gain {level}: out of range")
        size = np.sqrt(np.maximum(np.diag(gram), 0.0))
        if (
            (gram != gram.T).any()
            or (np.abs(gram) > np.outer(size, size) * (1.0 + 1e-9) + 1e-12).any()
            or (gram < 0.0).any()
        ):
            raise ValueError("gram: no sums of products")
        if not 0.0 <= moment.min() <= moment.max() <= _MOMENT_MAX or gram.max() > _MOMENT_MAX:
            raise ValueError("gram, moment: out of range")
        self.windows, self._level, self._gram, self._moment = float(windows), float(level), gram, moment
        self._engaged, self._outliers = 0.0, 0
        self._set(_solved(gram, moment))

    def _trust(self, window: Window) -> float:
        """1, or less for a window that fits nothing seen before and may be a stall or a counter's jump."""
        predicted_s = self.predict_s(window)
        if window.seconds > _SLOW * predicted_s + _SLOW_S:
            self._outliers = max(self._outliers, 0) + 1
        elif window.seconds < _FAST * predicted_s:
            self._outliers = min(self._outliers, 0) - 1
        else:
            self._outliers = 0
        early = self._outliers > 0 and self.windows < _OUTLIERS_BELIEVED
        doubted = 0 < abs(self._outliers) < _OUTLIERS_BELIEVED and not early
        return _OUTLIER_WEIGHT if doubted else 1.0

    def _follow(self, ratio: float, weight: float) -> None:
        """Move the gain towards `ratio`: seconds it took to seconds predicted without a gain."""
        ratio = min(max(ratio, _GAIN_MIN), _GAIN_MAX)
        if ratio > self._level:
            self._level += _GAIN_RATE * weight * (ratio - self._level)
        else:
            self._level = 1.0 / (1.0 / self._level + _GAIN_RATE * weight * (1.0 / ratio - 1.0 / self._level))

    def _absorb(self, window: Window, predicted_s: float, trust: float) -> None:
        """Add the window to the sums, which forget a little; `predicted_s` is without the gain."""
        seconds = window.seconds
        if self.windows >= _KNOWN:
            seconds /= _in_force(self._level)
            norm_s = max(seconds, predicted_s) * max(_FAST * predicted_s / seconds, 1.0)
        else:
            norm_s = seconds * max(_FAST * predicted_s / seconds, 1.0) ** 2
        row = _PRIOR * (window.steps, window.tokens, window.kv_token_steps, window.attention) / norm_s
        keep, weight = _DECAY**window.weight, window.weight * trust
        self._gram = keep * self._gram + weight * np.outer(row, row)
        self._moment = keep * self._moment + weight * (seconds / norm_s) * row

    def _take_out(self, factor: float) -> None:
        """Multiply the gain by what the coefficients' change leaves of it, but not past 1."""
        level = self._level * factor
        self._level = 1.0 if (level - 1.0) * (self._level - 1.0) < 0.0 else min(max(level, _GAIN_MIN), _GAIN_MAX)

    def _restated(self, theta: Theta, window: Window) -> Theta:
        """`theta`; after a while in force the one that has the gain in it, where the bounds leave it room."""
        self._engaged = 0.0 if _in_force(self._level) == 1.0 else self._engaged + window.weight
        if self._engaged < _RESTATE_AFTER:
            return theta
        self._engaged = 0.0
        gram, moment = self._gram / self._level**2, self._moment / self._level
        restated = _solved(gram, moment)
        left = self._level * _seconds(theta, window) / _seconds(restated, window)
        if _in_force(left) != 1.0:
            return theta
        self._gram, self._moment, self._level = gram, moment, left
        return restated

    def _set(self, theta: Theta) -> None:
        self.theta, self.gain = theta, _in_force(self._level)
        self._base_s, self._token_s, self._kv_token_s, self._attention_s = (self.gain * th for th in theta)


def _in_force(level: float) -> float:
    return 1.0 if _UNUSED_MIN <= level <= _UNUSED_MAX else level


def _seconds(theta: Theta, window: Window) -> float:
    return (
        theta.base_s * window.steps
        + theta.token_s * window.tokens
        + theta.kv_token_s * window.kv_token_steps
        + theta.attention_s * window.attention
    )


def _usable(window: Window, seconds_max: float) -> bool:
    counts = (window.steps, window.tokens, window.kv_token_steps, window.attention)
    return (
        _SECONDS_MIN <= window.seconds <= seconds_max
        and window.steps >= _STEPS_MIN
        and 0.0 < window.weight <= _WEIGHT_MAX
        and all(isfinite(count) and 0.0 <= count <= _COUNT_MAX for count in counts)
    )


def _solved(gram: Floats, moment: Floats) -> Theta:
    base_s, token_s, kv_token_s, attention_s = (_PRIOR * solve(gram, moment)).tolist()
    return Theta(base_s, token_s, kv_token_s, attention_s)
