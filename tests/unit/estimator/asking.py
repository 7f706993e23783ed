"""Requests and histories that the tests of all estimators share."""

from typing import TypeVar

from tidegate_estimator import CompletionRequest, CostEstimate, Estimator, Message, NgramEstimator

E = TypeVar("E", bound=Estimator)

PROMPT = "Summarise the attached report for a busy reader. " * 8
LENGTHS = [50 + 10 * ((i * 7) % 11 - 5) / 5 for i in range(500)]  # 40 to 60, evenly spread


def request(
    tenant: str = "acme",
    *,
    model: str = "llama",
    max_tokens: int | None = None,
    sequences: int = 1,
    min_tokens: int = 0,
    ignore_eos: bool = False,
    text: str = PROMPT,
) -> CompletionRequest:
    return CompletionRequest(
        tenant=tenant,
        model=model,
        messages=(Message(role="user", text=text),),
        prompt_chars=len(text),
        max_tokens=max_tokens,
        sequences=sequences,
        min_tokens=min_tokens,
        ignore_eos=ignore_eos,
    )


def taught(estimator: E, lengths: list[float], **facts: int) -> E:
    """The estimator, once it has seen these answers to the one prompt."""
    for length in lengths:
        ticket = estimator.estimate(request(**facts)).ticket  # type: ignore[arg-type]
        assert estimator.learn(ticket, round(length), "stop")
    return estimator


def taught_two_tasks(answers: int = 300) -> NgramEstimator:
    """One tenant that asks for stories (900 tokens) and for translations (12) in turn."""
    estimator = NgramEstimator()
    for i in range(answers):
        text, length = (f"Write a long story about {i}", 900) if i % 2 else (f"Translate the word {i}", 12)
        estimator.learn(estimator.estimate(request(text=text)).ticket, length, "stop")
    return estimator


def quantiles(estimate: CostEstimate) -> list[float]:
    return [estimate.p50, estimate.p80, estimate.p90, estimate.p95]
