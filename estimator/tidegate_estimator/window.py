"""The window estimator: what this tenant's answers from this model were like lately, and how large the prompt is.

    ln(tokens) ~ [tenant+model, last 64] over [all, last 256] over [150 at p50, 500 at p90] + correction[prompt size]

Each level counts as 4 answers for the one before it: a first answer moves the estimate by about a third, and none is
needed. It reads no text but a sample for the prompt's tokens. Why logs: raw means follow the longest answer. Why a
window and not a decayed mean: quantiles, and a model that changes behind its name is forgotten after 64 answers.

An answer cut short is a lower bound, never a length. It is replaced by a point of the predicted distribution above the
bound (multiple imputation: the points walk evenly through that tail, so that the spread stays true), and adds to the
trust in the history only where it lies above what was expected. A cut at a bound the caller did not state is the
engine's own limit, which will cut the next answer too: that one is the length.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from math import exp, log, sqrt
from zlib import crc32

from tidegate_estimator import window_state
from tidegate_estimator.caps import TOKENS_MAX, caps_of, was_cut
from tidegate_estimator.cost import CostEstimate, Source
from tidegate_estimator.history import BUCKETS, CORRECTION_MAX, PRIOR, History, Shape
from tidegate_estimator.lognormal import (
    LOG_TOKENS_MAX,
    SIGMA_FORCED,
    SIGMA_MAX,
    SIGMA_MIN,
    log_beyond,
    mean_under,
)
from tidegate_estimator.recent import touch
from tidegate_estimator.remaining import remaining_tokens
from tidegate_estimator.request import CompletionRequest
from tidegate_estimator.ticket import Ticket, open_ticket, ticket_of
from tidegate_estimator.tokens import PromptTokens

KEYS_MAX = 20_000
KEY_WINDOW, ALL_WINDOW = 64, 256
_WIDER_WEIGHT = 4.0
_GOLDEN = 0.6180339887498949


def key_of(tenant: str, model: str) -> int:
    """64-bit hash of tenant and model, the same in every process; the length keeps the two apart."""
    name = f"{len(tenant)} {tenant}{model}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


class WindowEstimator:
    """An `Estimator` by running quantiles: one history a tenant and model, at most 20,000, the idlest leaves first."""

    def __init__(self) -> None:
        self._all = History(ALL_WINDOW)
        self._by_key: OrderedDict[int, History] = OrderedDict()
        self._prompts = PromptTokens()
        self._imputed = 0

    def estimate(self, request: CompletionRequest) -> CostEstimate:
        """Predict from the tenant's history, or what is wider; about 15 us, whatever the prompt's size."""
        key, model = key_of(request.tenant, request.model), crc32(request.model.encode("utf-8", "surrogatepass"))
        prompt_tokens, base_tokens = self._prompts.predict(request, model)
        bucket = min(prompt_tokens.bit_length(), BUCKETS - 1)
        shape, correction, source = self._predict(key, bucket)
        caps = caps_of(request)
        shift = correction + log(caps.sequences)
        if caps.forced:
            source, log_mean, log_sigma = Source.CAP, log(caps.most), SIGMA_FORCED
        else:
            log_mean = min(shape.mean + shift, LOG_TOKENS_MAX + log(caps.sequences))
            log_sigma = min(max(sqrt(shape.variance), SIGMA_MIN), SIGMA_MAX)
        p50, p80, p90, p95 = [caps.clip(exp(q + shift)) for q in shape.quantiles]
        ticket = ticket_of(
            caps,
            bucket=bucket,
            key=key,
            model=model,
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
            source=source,
            ticket=ticket.pack(),
        )

    def learn(
        self, ticket: bytes, completion_tokens: int, finish_reason: str, prompt_tokens: int | None = None
    ) -> bool:
        """Take in one answer; True where it taught something, about the answer or about the prompt."""
        opened = open_ticket(ticket)
        if opened is None or opened.bucket >= BUCKETS:
            return False
        taught = self._prompts.teach(opened.model, opened.base_tokens, prompt_tokens)
        return self._learn_completion(opened, completion_tokens, finish_reason) or taught

    def remaining(self, ticket: bytes, generated_tokens: int) -> float:
        """Expected tokens still to come, under the caller's cap; by the prior for bytes that are no ticket."""
        return remaining_tokens(open_ticket(ticket), generated_tokens)

    def dump(self) -> bytes:
        """The learned state: hashes and lengths, no names; about 400 bytes a tenant and model."""
        return window_state.pack(self._all, self._by_key, self._prompts, self._imputed)

    def snapshot(self) -> Callable[[], bytes]:
        """The learned state of now; the function gives it as `dump` does."""
        state = self.dump()
        return lambda: state

    def load(self, state: bytes) -> None:
        """Take over a dumped state; ValueError where it is damaged, and then nothing has changed."""
        self._all, self._by_key, self._prompts, self._imputed = window_state.unpack(
            state, all_size=ALL_WINDOW, key_size=KEY_WINDOW, keys_max=KEYS_MAX
        )

    def _predict(self, key: int, bucket: int) -> tuple[Shape, float, Source]:
        """Shape of ln(tokens) per sequence without the correction for the prompt's size, and that correction."""
        shape = self._all.shape.over(PRIOR, _WIDER_WEIGHT)
        correction = self._all.correction(bucket, 0.0)
        source = Source.GLOBAL if self._all.seen else Source.PRIOR
        history = self._by_key.get(key)
        if history is not None:
            shape = history.shape.over(shape, _WIDER_WEIGHT)
            correction = history.correction(bucket, correction)
            source = Source.TENANT_MODEL if history.seen else source
        return shape, min(max(correction, -CORRECTION_MAX), CORRECTION_MAX), source

    def _learn_completion(self, ticket: Ticket, tokens: int, finish_reason: str) -> bool:
        """Add an answer to its history and to the one of all; False where its length says nothing."""
        if ticket.forced or not (0 < tokens <= TOKENS_MAX) or tokens <= ticket.min_tokens:
            return False
        cut = was_cut(tokens, finish_reason, ticket.cap_tokens)
        shape, correction, _ = self._predict(ticket.key, ticket.bucket)
        length = min(max(log(tokens / ticket.sequences), 0.0), LOG_TOKENS_MAX)
        counts = not cut or length > shape.mean + correction
        if cut:
            self._imputed += 1
            sigma = min(max(sqrt(shape.variance), SIGMA_MIN), SIGMA_MAX)
            share = self._imputed * _GOLDEN % 1.0
            length = min(log_beyond(shape.mean + correction, sigma, length, share), LOG_TOKENS_MAX)
        own = touch(self._by_key, ticket.key, _new_history, KEYS_MAX)
        own.add(length - correction, counts=counts)
        self._all.add(length - correction, counts=counts)
        # Against the tenant's own mean in both, or the sizes would take the credit for who sends them.
        residual = length - own.shape.mean
        own.correct(ticket.bucket, residual)
        self._all.correct(ticket.bucket, residual)
        return True


def _new_history() -> History:
    return History(KEY_WINDOW)
