"""Requests that end where their prompt ends: embeddings, rerank, scores.

To the estimator they are requests whose length is dictated: one token a sequence, so that their answers teach it the
size of prompts and nothing about the length of completions.
"""

from tidegate.dialects import openai_body
from tidegate.dialects.base import CostClass, InferenceRequest
from tidegate.dialects.prompts import PROMPTS_MAX
from tidegate_estimator import CompletionRequest


def prompt_only(
    *,
    tenant: str,
    model: str,
    role_texts: list[tuple[str, str]],
    chars: int,
    sequences: int,
    tokens: int | None = None,
    media_tokens: int = 0,
) -> InferenceRequest:
    """The facts of such a request: its texts, the characters of all it has the engine read, and how many inputs.

    `tokens`: exact, where the caller sent token ids.
    """
    messages, dropped_chars = openai_body.kept_messages(role_texts)
    completion = CompletionRequest(
        tenant=tenant,
        model=model,
        messages=messages,
        prompt_chars=chars + dropped_chars,
        prompt_tokens=tokens,
        media_tokens=media_tokens,
        max_tokens=1,
        ignore_eos=True,
        sequences=min(max(sequences, 1), PROMPTS_MAX),
    )
    return InferenceRequest(completion=completion, stream=False, cost_class=CostClass.PROMPT)
