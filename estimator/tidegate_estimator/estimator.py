"""The seam: what every estimator can do."""

from collections.abc import Callable
from typing import Protocol

from tidegate_estimator.cost import CostEstimate
from tidegate_estimator.request import CompletionRequest


class Estimator(Protocol):
    """Predicts the cost of a request and learns from the answer. Never raises on any request or ticket."""

    def estimate(self, request: CompletionRequest) -> CostEstimate:
        """Predict; constant time in the prompt's size, no learning, no memory of the request."""
        ...

    def learn(
        self, ticket: bytes, completion_tokens: int, finish_reason: str, prompt_tokens: int | None = None
    ) -> bool:
        """Take in one finished answer; False where the ticket does not open or the label teaches nothing.

        Args:
            ticket: of the estimate.
            completion_tokens: tokens the engine generated, all sequences together.
            finish_reason: `stop`, `length` (cut by a cap), `abort` (client or engine cut it); empty is unknown.
            prompt_tokens: as the engine counted them, or None.
        """
        ...

    def remaining(self, ticket: bytes, generated_tokens: int) -> float:
        """Expected completion tokens still to come after `generated_tokens` of them."""
        ...

    def dump(self) -> bytes:
        """The learned state, for a state file."""
        ...

    def snapshot(self) -> Callable[[], bytes]:
        """A copy of the learned state, taken quickly; the function turns it into what `dump` gives, in any thread."""
        ...

    def load(self, state: bytes) -> None:
        """Take over a dumped state; ValueError where it is damaged or of another version."""
        ...
