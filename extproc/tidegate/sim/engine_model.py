"""A continuous-batching engine in the manner of vLLM V1, without time or I/O of its own.

Formula, one step at a time:

1. Every decoding sequence gets one token. Where the KV blocks do not suffice, the sequence that was started last loses
   all of its blocks and goes to the front of the queue, to be computed again; so on until they do.
2. What is left of the token budget goes to the one sequence whose prefill is under way, then to those that wait, first
   come first served, while slots, blocks and budget last; nobody is started in a step that preempted somebody. The last
   may get a part of its prompt only: a chunk.
3. The step takes `StepCost.seconds`. At its end the tokens come out; a prefill that ended gives its first one.

Reason for the bookkeeping: while it decodes, a sequence changes in a way that is known beforehand. It grows by one
token a step, opens a new block every `BLOCK_TOKENS` steps and ends in a step known when its decoding begins. So a step
only counts: sequences by the step of their end, and by the phase in which they open a block. Its cost does not depend
on how many run.

No prefix cache is modelled: every prompt is computed in full.
"""

from collections import OrderedDict

from tidegate.sim.engine_records import EngineCounters, Sequence, StepEvent
from tidegate.sim.profiles import BLOCK_TOKENS, EngineProfile


def blocks_for(tokens: int) -> int:
    """KV blocks that hold `tokens`."""
    return -(-tokens // BLOCK_TOKENS)


class EngineModel:
    """The engine. Time is told: call `advance(now_s)` before anything else that takes `now_s`, and never go back.

    `cost` may be replaced at any moment and rules from the next step on, so that an engine can slow down.
    """

    def __init__(
        self, profile: EngineProfile, *, queue_len_max: int | None = None, queue_tokens_max: int | None = None
    ) -> None:
        """An idle engine; its own queue is bounded in sequences and in prompt tokens, None: not at all."""
        self.profile = profile
        self.cost = profile.cost
        self.counters = EngineCounters()
        self.blocks = profile.kv_blocks
        self._queue_len_max = queue_len_max
        self._queue_tokens_max = queue_tokens_max
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()
        self._waiting_tokens = 0
        self._running: OrderedDict[str, Sequence] = OrderedDict()  # in order of their start
        self._free_blocks = self.blocks
        self._prefilling: Sequence | None = None  # the one whose prompt is in the cache in part; always started last
        self._prefilled: list[Sequence] = []  # prefills that end with the step in flight
        self._decoding = 0
        self._decoding_kv_tokens = 0
        self._opening_by_phase = [0] * BLOCK_TOKENS
        self._finishing_by_step: dict[int, dict[str, Sequence]] = {}
        self._step = 0  # number of the step in flight, or of the last one
        self._step_end_s: float | None = None
        self._preempted: list[str] = []

    @property
    def running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for one, preempted ones included."""
        return len(self._waiting)

    @property
    def decoding(self) -> int:
        """Running sequences past their prefill."""
        return self._decoding

    @property
    def blocks_used(self) -> int:
        """KV blocks held, out of `blocks`."""
        return self.blocks - self._free_blocks

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks that is held, 0 to 1."""
        return self.blocks_used / self.blocks

    def holds(self, prompt_tokens: int, completion_tokens: int) -> bool:
        """Whether such a sequence fits an otherwise empty engine; the last token's KV is never computed."""
        return blocks_for(prompt_tokens + completion_tokens - 1) <= self.blocks

    def admits(self, sequences: int, prompt_tokens: int) -> bool:
        """Whether the queue's own bounds allow so many more sequences, with so many prompt tokens in all.

        Those it does not allow are counted as rejected.
        """
        len_max, tokens_max = self._queue_len_max, self._queue_tokens_max
        if (len_max is None or len(self._waiting) + sequences <= len_max) and (
            tokens_max is None or self._waiting_tokens + prompt_tokens <= tokens_max
        ):
            return True
        self.counters.rejected += sequences
        return False

    def submit(self, sequence_id: str, prompt_tokens: int, completion_tokens: int, now_s: float) -> bool:
        """Put a sequence in line; `completion_tokens` is its true length. False: the queue's bound refuses it.

        Raises:
            ValueError: it has no tokens, can never fit, or its id is in use.
        """
        assert self._step_end_s is None or now_s <= self._step_end_s, "advance to now_s first"
        if prompt_tokens < 1 or completion_tokens < 1 or not self.holds(prompt_tokens, completion_tokens):
            raise ValueError(f"{prompt_tokens} + {completion_tokens} tokens do not fit {self.blocks} blocks")
        if sequence_id in self._running or sequence_id in self._waiting:
            raise ValueError(f"{sequence_id!r} is in the engine already")
        if not self.admits(1, prompt_tokens):
            return False
        self.counters.submitted += 1
        self._waiting[sequence_id] = Sequence(sequence_id, prompt_tokens, completion_tokens)
        self._waiting_tokens += prompt_tokens
        if self._step_end_s is None:
            self._start_step(now_s)
        return True

    def abort(self, sequence_id: str, now_s: float) -> bool:
        """Drop a sequence; slot and blocks are free at once. False where it is not in the engine (any more).

        A step in flight keeps its duration, as on a GPU, but gives this sequence no token.
        """
        assert self._step_end_s is None or now_s <= self._step_end_s, "advance to now_s first"
        sequence = self._running.get(sequence_id)
        if sequence is not None:
            self._release(sequence)
        else:
            sequence = self._waiting.pop(sequence_id, None)
            if sequence is None:
                return False
            self._waiting_tokens -= sequence.target_tokens
        self.counters.aborted += 1
        self.counters.wasted_tokens += sequence.generated
        self.counters.wasted_prefill_tokens += sequence.computed_tokens
        return True

    def generated_tokens(self, sequence_id: str) -> int:
        """Completion tokens that came out so far; KeyError where it is not in the engine (any more)."""
        sequence = self._running.get(sequence_id)
        return self._waiting[sequence_id].generated if sequence is None else self._generated(sequence)

    def next_step_at_s(self) -> float | None:
        """When the step in flight ends, or None where the engine is idle."""
        return self._step_end_s

    def advance(self, now_s: float) -> list[StepEvent]:
        """Finish every step that ends by `now_s`, each starting when the one before ended; oldest first."""
        events = []
        while self._step_end_s is not None and self._step_end_s <= now_s:
            end_s = self._step_end_s
            events.append(self._finish_step(end_s))
            self._start_step(end_s)
        return events

    def _start_step(self, start_s: float) -> None:
        if not self._running and not self._waiting:
            self._step_end_s = None
            return
        self._preempted = []
        self._free_for_decoding()
        self._step += 1
        self._free_blocks -= self._opening_by_phase[self._step % BLOCK_TOKENS]
        self._decoding_kv_tokens += self._decoding
        tokens, attention = self._prefill(self.profile.batched_tokens - self._decoding)
        tokens += self._decoding
        assert tokens > 0, "a step must move somebody on"
        self._step_end_s = start_s + self.cost.seconds(tokens, self._decoding_kv_tokens, attention)

    def _free_for_decoding(self) -> None:
        """Preempt until every decoding sequence can have its next token."""
        phase = (self._step + 1) % BLOCK_TOKENS
        while self._free_blocks < self._opening_by_phase[phase]:
            self._preempt(next(reversed(self._running.values())))

    def _prefill(self, budget_tokens: int) -> tuple[int, float]:
        """Spend the budget on prompts; returns tokens and, for attention, tokens times mean context."""
        left_tokens, attention = budget_tokens, 0.0
        sequence = self._prefilling
        if sequence is not None and left_tokens > 0:
            chunk_tokens = self._chunk(sequence, left_tokens)
            if chunk_tokens == 0:
                self._preempt(sequence)
            else:
                attention += self._compute(sequence, chunk_tokens)
                left_tokens -= chunk_tokens
        while left_tokens > 0 and self._waiting and not self._preempted and len(self._running) < self.profile.slots:
            sequence = next(iter(self._waiting.values()))
            chunk_tokens = self._chunk(sequence, left_tokens)
            if chunk_tokens == 0:
                break
            del self._waiting[sequence.id]
            self._waiting_tokens -= sequence.target_tokens
            self._running[sequence.id] = sequence
            attention += self._compute(sequence, chunk_tokens)
            left_tokens -= chunk_tokens
        return budget_tokens - left_tokens, attention

    def _chunk(self, sequence: Sequence, budget_tokens: int) -> int:
        """Tokens to prefill next; 0 where the blocks for them are not there: a chunk is not cut to what is free."""
        tokens = min(sequence.target_tokens - sequence.computed_tokens, budget_tokens)
        blocks = blocks_for(sequence.computed_tokens + tokens) - blocks_for(sequence.computed_tokens)
        return tokens if blocks <= self._free_blocks else 0

    def _compute(self, sequence: Sequence, tokens: int) -> float:
        """Give it `tokens` of prefill in the step that starts; returns tokens times mean context."""
        before = sequence.computed_tokens
        sequence.computed_tokens = before + tokens
        self._free_blocks -= blocks_for(before + tokens) - blocks_for(before)
        self.counters.prefill_tokens += tokens
        if sequence.computed_tokens == sequence.target_tokens:
            self._prefilling = None
            self._prefilled.append(sequence)
        else:
            self._prefilling = sequence
        return tokens * (before + tokens / 2)

    def _finish_step(self, end_s: float) -> StepEvent:
        self.counters.steps = self._step
        self._step_end_s = None
        tokens = self._decoding
        first_tokens: list[str] = []
        finished = list(self._finishing_by_step.get(self._step, ()))
        for sequence_id in finished:
            self._release(self._running[sequence_id])
        prompt_tokens = 0
        prefilled, self._prefilled = self._prefilled, []
        for sequence in prefilled:
            tokens += 1
            if sequence.generated == 0:
                first_tokens.append(sequence.id)
                prompt_tokens += sequence.prompt_tokens
            if not self._begin_decoding(sequence):
                finished.append(sequence.id)
        self.counters.prompt_tokens += prompt_tokens
        self.counters.completion_tokens += tokens
        self.counters.finished += len(finished)
        return StepEvent(end_s, tokens, prompt_tokens, first_tokens, finished, self._preempted)

    def _begin_decoding(self, sequence: Sequence) -> bool:
        """The prefill's end gives one token; False where that was the last."""
        sequence.generated += 1
        if sequence.generated == sequence.completion_tokens:
            self._release(sequence)
            return False
        sequence.decoding_since = self._step
        self._decoding += 1
        self._decoding_kv_tokens += sequence.target_tokens
        self._opening_by_phase[sequence.phase % BLOCK_TOKENS] += 1
        self._finishing_by_step.setdefault(sequence.finish_step, {})[sequence.id] = sequence
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Take its blocks; what it generated is computed again as if it were prompt."""
        self._release(sequence)
        self.counters.preemptions += 1
        self.counters.wasted_prefill_tokens += sequence.computed_tokens
        self._preempted.append(sequence.id)
        sequence.computed_tokens = 0
        sequence.target_tokens = sequence.prompt_tokens + sequence.generated
        self._waiting[sequence.id] = sequence
        self._waiting.move_to_end(sequence.id, last=False)
        self._waiting_tokens += sequence.target_tokens

    def _release(self, sequence: Sequence) -> None:
        """Take its slot and blocks, wherever in its life it is; what it generated stays on its record."""
        del self._running[sequence.id]
        if sequence is self._prefilling:
            self._prefilling = None
        kv_tokens = sequence.computed_tokens
        if sequence.decoding_since >= 0:
            kv_tokens = sequence.target_tokens + self._step - sequence.decoding_since
            self._forget_decoding(sequence, kv_tokens)
        elif sequence in self._prefilled:
            self._prefilled.remove(sequence)
        self._free_blocks += blocks_for(kv_tokens)

    def _forget_decoding(self, sequence: Sequence, kv_tokens: int) -> None:
        self._decoding -= 1
        self._decoding_kv_tokens -= kv_tokens
        self._opening_by_phase[sequence.phase % BLOCK_TOKENS] -= 1
        finishing = self._finishing_by_step[sequence.finish_step]
        del finishing[sequence.id]
        if not finishing:
            del self._finishing_by_step[sequence.finish_step]
        sequence.generated = self._generated(sequence)
        sequence.decoding_since = -1

    def _generated(self, sequence: Sequence) -> int:
        if sequence.decoding_since < 0:
            return sequence.generated
        return sequence.generated + self.counters.steps - sequence.decoding_since
