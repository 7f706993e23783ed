"""What the engine model says and counts."""

from dataclasses import dataclass
from typing import NamedTuple


class StepEvent(NamedTuple):
    """One finished step; a tuple because a benchmark makes millions of them.

    Every sequence that was decoding gained exactly one token; `EngineModel.generated_tokens` tells how many each has.

    Attributes:
        end_s: when the step ended and its tokens came out.
        tokens: completion tokens that came out, one a sequence.
        prompt_tokens: tokens of the prompts whose prefill ended here for the first time.
        first_tokens: ids whose first token came out, in order of service.
        finished: ids whose last token came out; they are gone.
        preempted: ids put back to the front of the queue when the step began; they keep their tokens.
    """

    end_s: float
    tokens: int
    prompt_tokens: int
    first_tokens: list[str]
    finished: list[str]
    preempted: list[str]


@dataclass(slots=True, kw_only=True)
class EngineCounters:
    """Totals since the start; they only grow.

    Attributes:
        submitted: requests accepted; submitted = finished + aborted + running + waiting.
        rejected: requests refused by the queue's bound.
        finished, aborted: how the accepted ones ended.
        steps: steps finished.
        prompt_tokens: prompt tokens of requests whose prefill ended, each once.
        prefill_tokens: tokens prefilled in all, those of recomputed sequences again.
        completion_tokens: tokens generated.
        preemptions: times a sequence lost its KV blocks.
        wasted_tokens: completion tokens of requests that were aborted.
        wasted_prefill_tokens: tokens prefilled in vain: lost to a preemption or an abort.
    """

    submitted: int = 0
    rejected: int = 0
    finished: int = 0
    aborted: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    prefill_tokens: int = 0
    completion_tokens: int = 0
    preemptions: int = 0
    wasted_tokens: int = 0
    wasted_prefill_tokens: int = 0


class Sequence:
    """One sequence in the engine; only the model writes it.

    Attributes:
        generated: completion tokens when its decoding last began (or 0): since then it gained one a step.
        target_tokens: tokens to prefill: the prompt, after a preemption also what was generated.
        computed_tokens: how many of them are in the KV cache, the step in flight included.
        decoding_since: step in which its prefill ended, or -1 while it waits or prefills.
    """

    __slots__ = (
        "completion_tokens",
        "computed_tokens",
        "decoding_since",
        "generated",
        "id",
        "prompt_tokens",
        "target_tokens",
    )

    def __init__(self, sequence_id: str, prompt_tokens: int, completion_tokens: int) -> None:
        self.id = sequence_id
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.generated = 0
        self.target_tokens = prompt_tokens
        self.computed_tokens = 0
        self.decoding_since = -1

    @property
    def finish_step(self) -> int:
        """The step that gives its last token, unless it is preempted first."""
        return self.decoding_since + self.completion_tokens - self.generated

    @property
    def phase(self) -> int:
        """Steps that equal this modulo the block size are those in which its next token opens a new block."""
        return self.decoding_since + 1 - self.target_tokens
