"""How fast an engine decodes, learned from finished requests.

    sample   (e2e - ttft) / (tokens - 1)   of a streamed answer: its first token came with ttft
             e2e / tokens                  of a whole answer, whose first token nobody saw
    tau   += gain (clip(sample, tau / 4, 4 tau) - tau),   gain = 0.1 min(1, tokens / 32)

A running mean, because the time a token takes follows the engine's batch within seconds. A sample is clipped to a
factor of four, so that one stalled client or one answer that came in a single chunk cannot move it far, and a short
answer, whose quotient is mostly prefill and network, counts less. Prior 0.05 s. An answer of several sequences at once
counts its tokens together and so looks faster than it is; few are.
"""

from math import isfinite

from tidegate.admission.outcome import Ending, Outcome

TAU_PRIOR_S = 0.05
_TAU_S_MIN, _TAU_S_MAX = 1e-4, 10.0
_GAIN = 0.1
_TOKENS_FULL_WEIGHT = 32
_CLIP = 4.0


class Pace:
    """The running time a token takes; `tau_s` is always within 0.1 ms and 10 s."""

    __slots__ = ("tau_s",)

    def __init__(self) -> None:
        self.tau_s = TAU_PRIOR_S

    def restore(self, tau_s: object) -> None:
        """Take over a saved value; ValueError where it is no time a token can take."""
        if not isinstance(tau_s, float) or not _TAU_S_MIN <= tau_s <= _TAU_S_MAX:
            raise ValueError(f"tau_s: {tau_s!r} is not a number of seconds from {_TAU_S_MIN:g} to {_TAU_S_MAX:g}")
        self.tau_s = tau_s

    def learn(self, outcome: Outcome) -> bool:
        """Take in one finished request; False where it teaches nothing."""
        tokens = outcome.completion_tokens
        sample_s = tpot_s(outcome)
        if sample_s is None or tokens is None:
            return False
        gain = _GAIN * min(1.0, tokens / _TOKENS_FULL_WEIGHT)
        clipped_s = min(max(sample_s, self.tau_s / _CLIP), self.tau_s * _CLIP)
        self.tau_s = min(max(self.tau_s + gain * (clipped_s - self.tau_s), _TAU_S_MIN), _TAU_S_MAX)
        return True


def tpot_s(outcome: Outcome) -> float | None:
    """Seconds a completion token took, or None where the outcome does not tell.

    Only complete answers count: of one that was cut, nobody knows how many of its tokens were counted.
    """
    tokens, e2e_s = outcome.completion_tokens, outcome.e2e_s
    if outcome.ending is not Ending.COMPLETE or tokens is None or tokens < 2 or e2e_s is None:
        return None
    if outcome.stream:
        if outcome.ttft_s is None:
            return None
        sample_s = (e2e_s - outcome.ttft_s) / (tokens - 1)
    else:
        sample_s = e2e_s / tokens
    return sample_s if isfinite(sample_s) and sample_s > 0.0 else None
