"""One engine as the controller books it: what it is doing, what it can hold, and what has been learned of it.

    TTFT(p) = (max(1, (left + p) / (MB - n_d)) + 1/2) t(n_d, min(MB - n_d, left + p), kv) + th3 (p^2/2 + left ctx/2)

left prompt tokens are in line before it (see reckoning.py), of prompts of ctx tokens; half a step is what is left, on
average, of the one under way. A book may stand for `width` engines among which Envoy balances: its capacities are sums.
"""

from collections.abc import Mapping
from math import inf

from tidegate.admission.arrays import Floats
from tidegate.admission.cost import Cost
from tidegate.admission.engine_learning import OUTCOME_S_MAX, EngineLearning
from tidegate.admission.gates.tpot import PACE_SHARE
from tidegate.admission.kv_capacity import KvCapacity
from tidegate.admission.limits import Limits
from tidegate.admission.load import TimedLoad
from tidegate.admission.reading import EngineReading
from tidegate.admission.reckoning import Reckoning, Row
from tidegate.admission.reconciliation import Reconciliation, is_explained
from tidegate.admission.records import as_record
from tidegate.admission.service_book import ServiceBook
from tidegate.admission.slots_plateau import SlotsPlateau
from tidegate.admission.step_model import StepModel, Window

_SAVED_S, _SAVE_EVERY_S = 0.25, 0.01
_KV_SHORT_S = 1.0
_CLOCKS_APART_S = 1.0
_FULL_STEP = 1.5  # tokens a running sequence, from which on a step is taken to be full of prompts
_STALL_S, _STALL_STEPS, _STALL_WINDOWS_MIN = 0.45, 5.0, 20.0


class EngineBook:
    """The book of one engine, or of `width` that share the load. Implements `EngineLoad`.

    Time is told: `advance(now_s)` before anything else that takes `now_s`, and never goes back.

    Attributes:
        share: share of its capacity in use, 0 while it is down; whoever keeps the book sets it.
        model: its step time, as learned.
        service: the requests without tokens that it runs.
        others: what it runs beside what is booked, as its readings say; that takes up slots and KV tokens.
        tpot_target_s: the objective that prompts are paced for; 0 where there is none.
    """

    def __init__(
        self, limits: Limits, *, name: str = "", width: int = 1, now_s: float, model: StepModel | None = None
    ) -> None:
        self.name = name
        self.share = 1.0
        self.tpot_target_s = 0.0
        self.model = StepModel() if model is None else model
        self.service = ServiceBook(width=width, now_s=now_s)
        self.others = Reconciliation()
        self._limits = limits
        self._engine = Reckoning(batched_tokens=limits.batched_tokens, width=width, now_s=now_s, model=self.model)
        self._kv_capacity = KvCapacity(limits.kv_tokens)
        self._slots_plateau = SlotsPlateau(limits.slots)
        self._learning = EngineLearning()
        self._saved_tokens = 0.0
        self._saved_s = now_s
        self._kv_short_s = -inf

    def __len__(self) -> int:
        return len(self._engine)

    def __contains__(self, work_id: str) -> bool:
        return work_id in self._engine

    @property
    def width(self) -> int:
        """Engines it stands for."""
        return self._engine.width

    @width.setter
    def width(self, engines: int) -> None:
        self._engine.width = self.service.width = engines

    def see_first_tokens(self) -> None:
        """First tokens are reported from now on: one that was not has not come."""
        self._engine.sees_first_tokens = True

    @property
    def sequences(self) -> int:
        """Sequences it runs; a request without tokens counts as one."""
        return self._engine.table.sequences + len(self.service)

    @property
    def slots(self) -> int:
        """Sequences of ours that it may run at its present share, at least 1."""
        return max(1, int(self.share * self._slots_plateau.slots * self.width) - self.others.sequences)

    @property
    def slots_each(self) -> int:
        """Sequences one engine runs, at its whole share."""
        return self._slots_plateau.slots

    @property
    def kv_tokens_each(self) -> int:
        """KV tokens one engine holds, at its whole share."""
        return max(1, int(self._kv_capacity.tokens))

    @property
    def kv_tokens(self) -> float:
        """KV tokens its requests hold, prompts under way counted whole."""
        return self._engine.kv_tokens

    @property
    def kv_tokens_max(self) -> int:
        """KV tokens of ours that it may hold at its present share, at least 1."""
        return max(1, int(self.share * self._kv_capacity.tokens * self.width - self.others.kv_tokens))

    @property
    def kv_peak_now_tokens(self) -> float:
        """The most KV tokens that what runs is expected to hold at once."""
        return self._engine.table.peak_tokens(0.0, 0.0, 0)

    @property
    def prefilling(self) -> bool:
        """A prompt is being prefilled or waits for it."""
        return self._engine.line.left_tokens > 0.0

    @property
    def prefill_left_s(self) -> float:
        """How long the prompts in line will still take."""
        left_tokens = self._engine.line.left_tokens
        return left_tokens / self._engine.prefill_tokens_per_s if left_tokens > 0.0 else 0.0

    @property
    def timed_each(self) -> int:
        """Requests without tokens that one engine works on at once, at its whole share."""
        return self.service.slots_each

    @property
    def welcome(self) -> float:
        """Lowest where a request would do best: seconds of prefill ahead, then sequences, then KV in use."""
        return self.prefill_left_s + 1e-4 * self.sequences + 0.05 * self.kv_tokens / self.kv_tokens_max

    def timed_load(self) -> TimedLoad:
        """The requests without tokens that it runs, at its present share."""
        return self.service.load(self.share)

    def kv_demand_tokens(self, cost: Cost) -> float:
        """KV tokens needed if all grew to their expected ends at once: held + remaining + prompt + expected."""
        table = self._engine.table
        return table.held_tokens + table.remaining_tokens + cost.prompt_tokens + cost.completion_tokens

    def kv_peak_tokens(self, cost: Cost) -> float:
        """The most KV tokens that are expected to be held at once, this request included."""
        return self._engine.peak_tokens(cost)

    def ttft_s(self, prompt_tokens: float) -> float:
        """From being sent to it to the first token of such a prompt."""
        decoding, kv_tokens = self._engine.decoding, self._engine.decoding_kv_tokens
        ahead_tokens = self._engine.line.left_tokens / self.width
        budget_tokens = self._engine.chunk_tokens_max
        todo_tokens = ahead_tokens + prompt_tokens
        step_s = self.model.step_s(decoding, min(budget_tokens, todo_tokens), kv_tokens)
        attention = prompt_tokens * prompt_tokens / 2.0 + ahead_tokens * self._engine.line.head_tokens / 2.0
        return (max(1.0, todo_tokens / budget_tokens) + 0.5) * step_s + self._attention_s(attention)

    def tpot_s(self, *, joining: int, prefill: bool) -> float:
        """Time of a step once so many more sequences decode; with a full prefill chunk in it, or none."""
        decoding = self._engine.decoding + joining / self.width
        chunk_tokens = max(self._limits.batched_tokens - decoding, 0.0) if prefill else 0.0
        return self.model.step_s(decoding, chunk_tokens, self._engine.decoding_kv_tokens)

    def prefill_allowance(self, tpot_target_s: float) -> tuple[float, float]:
        """Prompt tokens a second that keep the time a token takes at 0.85 of the target, and how many are saved up."""
        return self._pace_tokens_per_s(tpot_target_s), self._saved_tokens

    def bottleneck_s(self, prompt_tokens: float, completion_tokens: float, sequences: int, tau_s: float) -> float:
        """Seconds such a request takes up the scarcest resource of one engine (see cost.py)."""
        decoding, kv_tokens = self._engine.decoding, self._engine.decoding_kv_tokens
        model = self.model
        rate = model.prefill_tokens_per_s(decoding, kv_tokens, self._limits.batched_tokens)
        decode_s = completion_tokens * tau_s
        return max(
            prompt_tokens / rate
            + self._attention_s(prompt_tokens * prompt_tokens / 2.0)
            + completion_tokens * model.step_s(decoding, 0.0, kv_tokens) / max(decoding, 32.0),
            (prompt_tokens + completion_tokens / (2.0 * sequences)) * decode_s / self._kv_capacity.tokens,
            decode_s / self._slots_plateau.slots,
        )

    def advance(self, now_s: float) -> None:
        """Reckon on to this time."""
        self._engine.advance(now_s)
        self.service.advance(now_s)
        if now_s >= self._saved_s + _SAVE_EVERY_S:
            self._save_up(now_s - self._saved_s)
            self._kv_capacity.tick(now_s, now_s < self._kv_short_s + _KV_SHORT_S)
            self._saved_s = now_s

    def kv_short(self, now_s: float) -> None:
        """A request waits for KV tokens."""
        self._kv_short_s = now_s

    def row(self, work_id: str) -> Row | None:
        """What is known of a request that runs."""
        return self._engine.row(work_id)

    def estimates(self) -> tuple[Floats, Floats, Floats]:
        """Log-means and log-sigmas before calibration and tokens generated, of all that run in it."""
        return self._engine.estimates()

    def dump(self) -> dict[str, object]:
        """What was learned of the engine, as a plain record."""
        return {"steps": self.model.dump(), "service": self.service.dump()}

    def restore(self, record: Mapping[str, object]) -> None:
        """Take over what was learned; ValueError where it is damaged."""
        if "steps" in record:
            self.model.restore(as_record(record["steps"]))
        if "service" in record:
            self.service.restore(as_record(record["service"]))

    def reconfigure(self, limits: Limits) -> None:
        """Take over other limits; of what was learned only that goes which is stated otherwise now."""
        before, self._limits = self._limits, limits
        self._engine.batched_tokens = limits.batched_tokens
        if limits.kv_tokens != before.kv_tokens:
            self._kv_capacity = KvCapacity(limits.kv_tokens)
        if limits.slots != before.slots:
            self._slots_plateau = SlotsPlateau(limits.slots)

    def admit(self, work_id: str, cost: Cost, now_s: float) -> None:
        """A request is sent to it."""
        self.advance(now_s)
        if cost.service_s is not None:
            self.service.admit(work_id, cost.service_s, now_s)
            return
        if self._pace_tokens_per_s(self.tpot_target_s) < inf:
            self._saved_tokens -= cost.prompt_tokens
        self._engine.admit(work_id, cost, now_s)

    def adopt(self, work_id: str, *, sequences: int, kv_tokens: int, now_s: float) -> None:
        """A request of which only the size is known runs already: it holds its tokens and grows no more."""
        self._engine.adopt(work_id, sequences=sequences, kv_tokens=kv_tokens, now_s=now_s)

    def release(self, work_id: str, now_s: float) -> Row | None:
        """It is over, or given up: what it held is free. What was known of it, or None."""
        row = self._engine.release(work_id, now_s)
        self.others.keep_within(self.sequences)
        return row

    def first_token(self, work_id: str, now_s: float) -> None:
        """Its first token was seen."""
        self._engine.first_token(work_id, now_s)

    def read(self, reading: EngineReading, now_s: float) -> None:
        """Set the reckoning right by the engine's own counters, and learn from them; of several engines, by their sums
        and, for `kv_usage`, their mean.
        """
        self.advance(now_s)
        reading = reading.checked()
        self._engine.count(reading)
        if reading.kv_tokens_max is not None:
            self._kv_capacity.says(reading.kv_tokens_max)
        if reading.slots is not None:
            self._slots_plateau.says(reading.slots)
        alone = self._reconcile(reading)
        if reading.kv_usage is not None and alone:
            self._kv_capacity.reading(self.kv_tokens / self.width, reading.kv_usage)
        window = self._learning.of_reading(reading, self._engine.passed(), width=self.width)
        if window is not None:
            self.model.learn(window)
            self._learn_slots(reading, window)

    def learn(self, row: Row, *, tokens: float, ttft_s: float | None, e2e_s: float, now_s: float) -> None:
        """Take in the truth about a request that ended: completion tokens of all its sequences, and its times."""
        self.advance(now_s)
        engine = self._engine
        if not 0.0 <= e2e_s <= now_s - row.admitted_s + _CLOCKS_APART_S:
            return  # no time that can have passed
        if ttft_s is not None and not 0.0 <= ttft_s <= e2e_s:
            ttft_s = None
        first_s, last_s = row.first_s, row.admitted_s + e2e_s
        if ttft_s is not None:
            first_s = row.admitted_s + ttft_s
            if not engine.sees_first_tokens:
                engine.correct_frontier(row, first_s)
        if first_s is None:
            return
        window = self._learning.of_outcome(
            first_s=first_s,
            last_s=last_s,
            ttft_seen=ttft_s is not None,
            tokens=tokens / row.cost.sequences,
            at=lambda time_s: engine.history.at(time_s, engine.now_s, engine.totals()),
            now_s=now_s,
            width=self.width,
        )
        if window is not None:
            self._look_for_stall(window)
            self.model.learn(window, OUTCOME_S_MAX)

    def _reconcile(self, reading: EngineReading) -> bool:
        """Compare the books with the engine's own count; whether what it runs is all from here, as far as it says."""
        if reading.running is None:
            self.others.forget()
            return True
        booked = self.sequences
        excess = reading.running + (reading.waiting or 0) - booked
        kv_excess_tokens = None
        if reading.kv_usage is not None:
            kv_excess_tokens = reading.kv_usage * self._kv_capacity.tokens * self.width - self.kv_tokens
        self.others.reading(
            excess,
            overdue=self._engine.overdue_sequences() if excess < 0 else 0,
            held_each=self.kv_tokens / max(booked, 1),
            kv_excess_tokens=kv_excess_tokens,
        )
        return is_explained(excess, booked)

    def _learn_slots(self, reading: EngineReading, window: Window) -> None:
        """Sequences wait for a slot only where steps are not full of prompts: else they wait for their prefill."""
        if reading.running is None or reading.waiting is None:
            return
        running = reading.running // self.width
        if window.tokens <= _FULL_STEP * window.steps * running:
            self._slots_plateau.reading(running, reading.waiting, reading.kv_usage)

    def _look_for_stall(self, window: Window) -> None:
        """An answer that took far longer than its steps should have lost its KV blocks on the way."""
        expected_s = self.model.predict_s(window)
        slack_s = max(_STALL_S, _STALL_STEPS * self.tpot_s(joining=0, prefill=True))
        if self.model.windows >= _STALL_WINDOWS_MIN and window.seconds > 1.5 * expected_s + slack_s:
            self._kv_capacity.stalled(self.kv_tokens / self.width)

    def _pace_tokens_per_s(self, tpot_target_s: float) -> float:
        """Prompt tokens a second that leave a step 0.85 of the target; infinity where any number does."""
        if tpot_target_s <= 0.0:
            return inf
        aim_s = PACE_SHARE * tpot_target_s
        full_s = self.tpot_s(joining=1, prefill=True)
        if full_s <= aim_s:
            return inf
        bare_s = self.tpot_s(joining=1, prefill=False)
        if full_s <= bare_s:  # as many decode as a step has tokens: no prompt gets a part of it
            return 0.0
        token_s = (full_s - bare_s) / self._engine.chunk_tokens_max
        return self.width * (1.0 - bare_s / aim_s) / token_s

    def _save_up(self, span_s: float) -> None:
        rate = self._pace_tokens_per_s(self.tpot_target_s)
        if rate == inf:
            self._saved_tokens = 1.0  # nothing to pace: whoever comes first once there is finds the gate open
        elif rate > 0.0:
            self._saved_tokens = min(self._saved_tokens + rate * span_s, _SAVED_S * rate)

    def _attention_s(self, attention: float) -> float:
        model = self.model
        return model.step_s(0.0, 0.0, 0.0, attention) - model.step_s(0.0, 0.0, 0.0)
