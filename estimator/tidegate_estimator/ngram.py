"""The n-gram estimator: who asks which model, how much and in which words; learned online from every answer.

    ln(1 + tokens) at 50, 80, 90, 95 % = mean of what two heads say, + the tenant's calibration at 90 and 95 %
    head M: a linear model of the mean over the tenant's running mean, with a histogram of residuals
    head S: a distribution over 32 lengths

Both are linear in the same hashed features, so that an answer of one tenant, model or wording teaches about all that
share it. Two heads because M learns faster and S knows about two humps; their errors differ, and the mean of both is
better than either. Words count as corrections on top of identity and size: alone they are worse than a tenant's
running mean.

An answer cut short is a lower bound, never a length: S learns its own distribution above the bound
(expectation-maximisation), M the mean of its residuals above it (Buckley and James 1979).
"""

from collections.abc import Callable
from math import expm1, log, log1p

import numpy as np

from tidegate_estimator import model_file
from tidegate_estimator.arrays import Doubles, Floats
from tidegate_estimator.caps import TOKENS_MAX, Caps, caps_of, was_cut
from tidegate_estimator.cost import CostEstimate, Source
from tidegate_estimator.distribution_head import quantiles
from tidegate_estimator.features import read_features, rows_of
from tidegate_estimator.identity import identity_of
from tidegate_estimator.keys import COUNT
from tidegate_estimator.lognormal import LOG_TOKENS_MAX, SIGMA_FORCED, SIGMA_MAX, SIGMA_MIN, mean_under
from tidegate_estimator.ngram_state import NgramState
from tidegate_estimator.ngram_ticket import NgramTicket, open_ngram_ticket
from tidegate_estimator.remaining import remaining_tokens
from tidegate_estimator.request import CompletionRequest
from tidegate_estimator.ticket import ticket_of

_LEVELS: Doubles = np.array((0.5, 0.8, 0.9, 0.95))
_P90 = 2
_Z90 = 1.2816
_LOG_LEAST = log1p(1.0)
_BEYOND_MAX = 2.5


class NgramEstimator:
    """An `Estimator` of two linear heads over hashed features; its memory is the same for any number of tenants."""

    def __init__(self) -> None:
        self._state = NgramState()

    def estimate(self, request: CompletionRequest) -> CostEstimate:
        """Predict; about 0.09 ms, whatever the prompt's size."""
        state, caps = self._state, caps_of(request)
        identity = identity_of(request.tenant, request.model)
        prompt_tokens, base_tokens = state.prompts.predict(request, identity.model)
        features = read_features(request)
        rows, row = rows_of(features), state.keys.find(identity.key)
        middle = state.mean_head.backoff(row) + state.mean_head.correction(rows)
        raw_levels = self._levels(row, middle, state.distribution_head.predict(rows))
        levels = _calibrated(raw_levels, state.calibration.shift(row))
        p50, p80, p90, p95 = [caps.clip(caps.sequences * expm1(level)) for level in levels]
        log_mean, log_sigma = _log_normal(levels, caps)
        common = ticket_of(
            caps,
            bucket=0,
            key=identity.key,
            model=identity.model,
            base_tokens=base_tokens,
            log_mean=log_mean,
            log_sigma=log_sigma,
        )
        return CostEstimate(
            prompt_tokens=prompt_tokens,
            log_mean=log_mean,
            log_sigma=log_sigma,
            p50=p50,
            p80=p80,
            p90=p90,
            p95=p95,
            mean=caps.clip(mean_under(log_mean, log_sigma, caps.most)),
            source=self._source(row, caps),
            ticket=NgramTicket(common=common, features=features, log_p90=raw_levels[_P90]).pack(),
        )

    def learn(
        self, ticket: bytes, completion_tokens: int, finish_reason: str, prompt_tokens: int | None = None
    ) -> bool:
        """Take in one answer; True where it taught something, about the answer or about the prompt."""
        opened = open_ngram_ticket(ticket)
        if opened is None:
            return False
        common = opened.common
        taught = self._state.prompts.teach(common.model, common.base_tokens, prompt_tokens)
        if common.forced or not 0 < completion_tokens <= TOKENS_MAX or completion_tokens <= common.min_tokens:
            return taught
        tokens = completion_tokens / common.sequences
        if was_cut(completion_tokens, finish_reason, common.cap_tokens):
            self._learn_beyond(opened, tokens)
        else:
            self._learn_length(opened, tokens)
        return True

    def remaining(self, ticket: bytes, generated_tokens: int) -> float:
        """Expected tokens still to come, under the caller's cap; by the prior for bytes that are no ticket."""
        opened = open_ngram_ticket(ticket)
        return remaining_tokens(None if opened is None else opened.common, generated_tokens)

    def dump(self) -> bytes:
        """The learned state: weights, hashes and lengths, no names; at most 14 MB."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], bytes]:
        """A copy of the learned state; the function makes it into what `dump` gives."""
        frozen = model_file.freeze(self._state)
        return lambda: model_file.encode(frozen)

    def load(self, state: bytes) -> None:
        """Take over a dumped state; ValueError where it is damaged, and then nothing has changed."""
        self._state = model_file.unpack(state)

    def _levels(self, row: Floats, middle: float, chances: Doubles) -> list[float]:
        """ln(1 + tokens) a sequence at the levels, before calibration."""
        residuals = self._state.residuals.quantiles(row, _LEVELS)
        return [0.5 * (middle + r + q) for r, q in zip(residuals, quantiles(chances, _LEVELS), strict=True)]

    def _source(self, row: Floats, caps: Caps) -> Source:
        if caps.forced:
            return Source.CAP
        if row[COUNT] > 0.0:
            return Source.TENANT_MODEL
        return Source.GLOBAL if self._state.mean_head.count > 0.0 else Source.PRIOR

    def _learn_length(self, ticket: NgramTicket, tokens: float) -> None:
        """Take in a whole answer, `tokens` a sequence.

        The p90 it is compared with is the one of then with the calibration of now: with that of then, thousands of
        answers under way would each correct it for the same fault.
        """
        state, common = self._state, ticket.common
        rows, row = rows_of(ticket.features), state.keys.touch(common.key)
        length = min(log1p(tokens), LOG_TOKENS_MAX)
        correction, chances = state.mean_head.correction(rows), state.distribution_head.predict(rows)
        middle = state.mean_head.backoff(row) + correction
        log_p90 = ticket.log_p90 + state.calibration.shift(row)
        p90_tokens = expm1(log_p90) * common.sequences
        if common.min_tokens < p90_tokens and not 0 < common.cap_tokens <= p90_tokens:
            state.calibration.learn(row, missed=length > log_p90)
        state.residuals.learn(row, length - middle)
        state.mean_head.learn(rows, row, length, correction)
        state.distribution_head.learn(rows, length, chances)

    def _learn_beyond(self, ticket: NgramTicket, tokens: float) -> None:
        """Take in an answer that was cut at `tokens` a sequence."""
        state = self._state
        rows, row = rows_of(ticket.features), state.keys.touch(ticket.common.key)
        bound = min(log1p(tokens), LOG_TOKENS_MAX)
        correction, chances = state.mean_head.correction(rows), state.distribution_head.predict(rows)
        middle = state.mean_head.backoff(row) + correction
        length = middle + state.residuals.learn_beyond(row, bound - middle)
        # Cuts alone never say how long answers are: without a limit they would raise the expectation for ever.
        length = min(length, max(bound + _BEYOND_MAX, middle), LOG_TOKENS_MAX)
        state.mean_head.learn(rows, row, length, correction)
        state.distribution_head.learn_beyond(rows, bound, chances)


def _calibrated(levels: list[float], shift: float) -> list[float]:
    """The levels in order, p90 and p95 shifted; p80 gives way to p90, which has been held against the truth."""
    p50, p80, p90, p95 = [min(max(level, _LOG_LEAST), LOG_TOKENS_MAX) for level in levels]
    p90 = min(max(p90 + shift, p50), LOG_TOKENS_MAX)
    return [p50, min(p80, p90), p90, min(max(p95 + shift, p90), LOG_TOKENS_MAX)]


def _log_normal(levels: list[float], caps: Caps) -> tuple[float, float]:
    """The log-normal through p50 and p90, before caps, of all sequences together."""
    if caps.forced:
        return log(caps.most), SIGMA_FORCED
    middle, high = log(max(expm1(levels[0]), 1.0)), log(max(expm1(levels[_P90]), 1.0))
    return middle + log(caps.sequences), min(max((high - middle) / _Z90, SIGMA_MIN), SIGMA_MAX)
