"""An estimator that notes how long its calls take."""

from time import perf_counter

from tidegate_estimator import CompletionRequest, CostEstimate
from tidegate_estimator.training import Learner


class Timed:
    """Passes calls on; `estimate_s` and `learn_s` are their seconds, in order."""

    def __init__(self, inner: Learner) -> None:
        self._inner = inner
        self.estimate_s: list[float] = []
        self.learn_s: list[float] = []

    def estimate(self, request: CompletionRequest) -> CostEstimate:
        """Predict, timed."""
        start = perf_counter()
        estimate = self._inner.estimate(request)
        self.estimate_s.append(perf_counter() - start)
        return estimate

    def learn(
        self, ticket: bytes, completion_tokens: int, finish_reason: str, prompt_tokens: int | None = None
    ) -> bool:
        """Learn, timed."""
        start = perf_counter()
        taught = self._inner.learn(ticket, completion_tokens, finish_reason, prompt_tokens)
        self.learn_s.append(perf_counter() - start)
        return taught
