"""Runs an engine model on a clock: a timer for the end of each step, and a wake-up for every answer that moved on."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from tidegate.clock import Clock, Timer
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.engine_records import StepEvent
from tidegate.sim.lengths import Length


class Choice:
    """One sequence of an answer; `generated` grows as the engine works, `taken` is what its reader has had."""

    __slots__ = ("finished", "generated", "id", "length", "taken")

    def __init__(self, sequence_id: str, length: Length) -> None:
        self.id = sequence_id
        self.length = length
        self.generated = 0
        self.taken = 0
        self.finished = False


class Generation:
    """All sequences of one request, and the event its one reader waits on.

    Attributes:
        chunk_tokens: new tokens of a choice that are worth waking the reader for; its first and last always are.
            None: wake when all is finished only.
        first_token_s: when its first token came out, or None.
    """

    __slots__ = ("_ready", "choices", "chunk_tokens", "first_token_s", "submitted_s", "unfinished")

    def __init__(self, choices: Sequence[Choice], *, chunk_tokens: int | None, submitted_s: float) -> None:
        self.choices = tuple(choices)
        self.chunk_tokens = chunk_tokens
        self.submitted_s = submitted_s
        self.first_token_s: float | None = None
        self.unfinished = len(self.choices)
        self._ready = asyncio.Event()

    @property
    def taken_tokens(self) -> int:
        """Tokens of all choices that the reader has had."""
        return sum(choice.taken for choice in self.choices)

    async def progress(self) -> None:
        """Wait until there is something new to read."""
        await self._ready.wait()
        self._ready.clear()

    def wake_if_due(self) -> None:
        """Wake the reader where enough has come for it."""
        if self.unfinished == 0 or (self.chunk_tokens is not None and any(map(self._due, self.choices))):
            self._ready.set()

    def _due(self, choice: Choice) -> bool:
        new_tokens = choice.generated - choice.taken
        if new_tokens == 0 or self.chunk_tokens is None:
            return False
        return choice.taken == 0 or choice.finished or new_tokens >= self.chunk_tokens


class Witness(Protocol):
    """Told of what happens, as it happens."""

    def on_step(self, event: StepEvent) -> None:
        """A step ended."""
        ...

    def on_first_token(self, ttft_s: float) -> None:
        """The first token of a request came out, so long after it was submitted."""
        ...

    def on_end(self, generation: Generation, now_s: float) -> None:
        """A request ended: finished, or closed before it was."""
        ...


class EngineDriver:
    """The one owner of a model: everything goes through it, on the event loop's thread."""

    def __init__(self, model: EngineModel, *, clock: Clock, witness: Witness) -> None:
        self.model = model
        self._clock = clock
        self._witness = witness
        self._timer: Timer | None = None
        self._serial = 0
        self._live: dict[str, tuple[Generation, Choice]] = {}  # bounded by what the model holds

    def start(self, work: Sequence[tuple[int, Length]], *, chunk_tokens: int | None) -> Generation | None:
        """Give the engine a request, as prompt tokens and length of each choice; None where its queue is full."""
        now_s = self.run()
        if not self.model.admits(len(work), sum(prompt_tokens for prompt_tokens, _ in work)):
            return None
        self._serial += 1
        choices = [Choice(f"{self._serial}-{index}", length) for index, (_, length) in enumerate(work)]
        generation = Generation(choices, chunk_tokens=chunk_tokens, submitted_s=now_s)
        for choice, (prompt_tokens, length) in zip(choices, work, strict=True):
            self.model.submit(choice.id, prompt_tokens, length.tokens, now_s)
            self._live[choice.id] = (generation, choice)
        self._arm()
        return generation

    def close(self, generation: Generation) -> None:
        """Its reader is gone: what is unfinished is aborted at once. Harmless where all is finished."""
        now_s = self.run()
        if generation.unfinished == 0:
            return
        for choice in generation.choices:
            if self._live.pop(choice.id, None) is not None:
                self.model.abort(choice.id, now_s)
        self._witness.on_end(generation, now_s)
        generation.unfinished = 0

    def stop(self) -> None:
        """No more steps."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def run(self) -> float:
        """Finish the steps that are due and hand out their tokens; returns the time."""
        now_s = self._clock.now_s()
        events = self.model.advance(now_s)
        for event in events:
            self._deliver(event)
        if events:
            self._wake_readers()
        return now_s

    def _deliver(self, event: StepEvent) -> None:
        for sequence_id in event.first_tokens:
            generation = self._live[sequence_id][0]
            if generation.first_token_s is None:
                generation.first_token_s = event.end_s
                self._witness.on_first_token(event.end_s - generation.submitted_s)
        for sequence_id in event.finished:
            generation, choice = self._live.pop(sequence_id)
            choice.generated = choice.length.tokens
            choice.finished = True
            generation.unfinished -= 1
            if generation.unfinished == 0:
                self._witness.on_end(generation, event.end_s)
            generation.wake_if_due()
        self._witness.on_step(event)

    def _wake_readers(self) -> None:
        generated_tokens = self.model.generated_tokens
        for sequence_id, (generation, choice) in self._live.items():
            if generation.chunk_tokens is not None:
                choice.generated = generated_tokens(sequence_id)
                generation.wake_if_due()

    def _arm(self) -> None:
        """Have a timer for the step in flight; one that is early already only asks again."""
        when_s = self.model.next_step_at_s()
        if self._timer is None and when_s is not None:
            self._timer = self._clock.call_at(when_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.run()
        self._arm()
