"""Prompt tokens without a tokenizer."""

import pytest

from tidegate_estimator import CompletionRequest, Message, WindowEstimator
from tidegate_estimator.tokens import FACTOR_MAX, MODELS_MAX, PromptTokens, density

PROSE = "The committee met on Tuesday to discuss the proposed changes to the library's opening hours. "
CODE = "for (int i = 0; i < n; ++i) { a[i] += b[i] * c[i]; }\n"


class _Unread(str):
    """A long text that fails the test where it is read from end to end."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise AssertionError("the whole prompt was read")


def request(text: str, model: str = "m", media_tokens: int = 0) -> CompletionRequest:
    return CompletionRequest(
        model=model, messages=(Message(role="user", text=text),), prompt_chars=len(text), media_tokens=media_tokens
    )


@pytest.mark.parametrize(
    ("text", "tokens_per_char"),
    [(PROSE * 20, 0.185), (CODE * 20, 0.42), ("今日は天気がいいですね。" * 50, 1.0), ("Привет, как дела? " * 30, 0.4)],
    ids=["prose", "code", "japanese", "russian"],
)
def test_density_follows_the_kind_of_text(text: str, tokens_per_char: float) -> None:
    """Code and wide characters take more tokens a character than prose; figures are rough cl100k counts."""
    assert density(text) == pytest.approx(tokens_per_char, rel=0.35)


def test_a_long_prompt_is_sampled_only() -> None:
    """The prompt's text is never encoded whole; its size still counts."""
    estimate = WindowEstimator().estimate(request(_Unread(PROSE * 10_000)))
    assert estimate.prompt_tokens == pytest.approx(0.2 * len(PROSE) * 10_000, rel=0.2)


def test_exact_ids_and_media_are_taken_as_they_are() -> None:
    """Token ids are the truth; images add to them."""
    estimator = WindowEstimator()
    assert estimator.estimate(CompletionRequest(prompt_tokens=1234)).prompt_tokens == 1234
    assert estimator.estimate(CompletionRequest(prompt_tokens=4, media_tokens=765)).prompt_tokens == 769


def test_a_models_own_tokenizer_is_learned() -> None:
    """After 30 observations of a model that needs 1.6 times the tokens, the estimate is within 4 %."""
    estimator = WindowEstimator()
    base = estimator.estimate(request(PROSE * 10, "dense")).prompt_tokens
    for _ in range(30):
        estimator.learn(estimator.estimate(request(PROSE * 10, "dense")).ticket, 10, "stop", round(1.6 * base))
    assert estimator.estimate(request(PROSE * 10, "dense")).prompt_tokens == pytest.approx(1.6 * base, rel=0.04)
    assert estimator.estimate(request(PROSE * 10, "other")).prompt_tokens == base


def test_the_prompts_truth_teaches_even_where_the_answer_does_not() -> None:
    """An abort without a token still tells how long the prompt was."""
    estimator = WindowEstimator()
    assert estimator.learn(estimator.estimate(request(PROSE)).ticket, 0, "abort", 30)
    assert not estimator.learn(estimator.estimate(request(PROSE, media_tokens=85)).ticket, 0, "abort", 30)


def test_absurd_counts_move_the_factor_a_bounded_way() -> None:
    """The correction stays within a factor of 4, and the table within its bound."""
    prompts = PromptTokens()
    for _ in range(500):
        prompts.learn(1, 100.0, 10**9)
        prompts.learn(2, 10_000.0, 1)
    assert prompts.factor(1) == pytest.approx(FACTOR_MAX, rel=0.01)
    assert prompts.factor(2) == pytest.approx(1 / FACTOR_MAX, rel=0.01)
    for model in range(2 * MODELS_MAX):
        prompts.learn(model, 100.0, 100)
    assert len(prompts.rows()) == MODELS_MAX
