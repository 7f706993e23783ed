"""What one engine is reckoned to be doing: who decodes, who prefills and how far it has come.

    rho     = (MB - n_d) / t(n_d, MB - n_d, kv)              prompt tokens a second
    steps  += dt / t(n_d, min(MB - n_d, left), kv)           every decoding sequence gains a token a step

n_d decoding sequences, kv the KV tokens they read, MB batched tokens, left the prompt tokens in line, t the learned
step time. Nothing of the answer passes through this process, so between two looks the engine is reckoned on with its
step model, and set right by whatever becomes known:

    first token   its prompt is done. Where first tokens are seen, the first in line is held at 95 % until its own is
    outcome       at the time of its first token the engine had come as far as its prompt's end. Half of what the
                  reckoning was behind or ahead then, and has not been corrected since, is made good, and the rate is
                  trimmed by 2 % for each second of it
    counters      steps made are tokens gained; sequences that wait are prompts not begun, and the rate is trimmed too

All may be reckoned for `width` engines among which Envoy balances; then each has an equal part of the load.
"""

from collections import deque
from math import exp, inf, isfinite
from typing import NamedTuple

from tidegate.admission.arrays import Floats
from tidegate.admission.cost import Cost
from tidegate.admission.engine_learning import Passed
from tidegate.admission.history import History, Totals
from tidegate.admission.prefill_line import PrefillLine
from tidegate.admission.reading import EngineReading
from tidegate.admission.reconciliation import is_explained
from tidegate.admission.running_table import RunningTable
from tidegate.admission.step_model import StepModel

_HEAD_SHARE_UNSEEN = 0.95
_SEGMENT_STEPS = 4.0
_SPAN_S_MIN = 1e-3  # of a busy moment's many looks one is enough
_SEGMENTS_MAX = 256  # of one look; what is left of the time then passes unreckoned
_REFRESH_S, _REFRESH_PEAK_S = 0.25, 0.02
_TRIM_MIN, _TRIM_MAX = 0.25, 4.0
_TRIM_GAIN, _DEBT_GAIN = 0.02, 0.5
_BEHIND_S_MIN = 0.1  # a step or two: first tokens come at the ends of steps
_DEBT_S_MAX = 20.0
_FIRST_S_STALE = 0.5
_STARTED_MAX = 64
_STEPS_PER_S_MAX = 10_000.0  # no engine is as fast: more is another engine's count
_OVERDUE, _OVERDUE_S = 4.0, 20.0  # times and seconds beyond which an answer should be complete, a slow start included


class Row:
    """One request in an engine, as its book knows it.

    Attributes:
        cost: what it was admitted with.
        admitted_s: when it was sent; first_s: when its first token came, as far as known; None before.
        frontier_tokens: where the engine is in its line when this prompt is done.
    """

    __slots__ = ("admitted_s", "cost", "first_s", "frontier_tokens")

    def __init__(self, cost: Cost, admitted_s: float, frontier_tokens: float) -> None:
        self.cost = cost
        self.admitted_s = admitted_s
        self.frontier_tokens = frontier_tokens
        self.first_s: float | None = None


class _Count(NamedTuple):
    """Steps by the engine's count, and by ours at the time."""

    total: float
    steps: float
    at_s: float


class Reckoning:
    """The motion of one engine, or of `width` that share the load.

    Time is told: `advance(now_s)` before anything else that takes `now_s`, and never goes back.

    Attributes:
        model: its step time, as learned.
        sees_first_tokens: first tokens are reported, so none has come that was not.
    """

    def __init__(self, *, batched_tokens: int, width: int, now_s: float, model: StepModel) -> None:
        self.batched_tokens = batched_tokens
        self.width = width
        self.model = model
        self.sees_first_tokens = False
        self.now_s = now_s
        self.table = RunningTable()
        self.line = PrefillLine()
        self.history = History()
        self._rows: dict[str, Row] = {}
        self._steps = 0.0
        self._grown_tokens = 0.0  # generated since the table's last refresh
        self._refreshed_s = now_s
        self._sequence_s = self._kv_token_s = self._busy_s = 0.0
        self._trim = 1.0
        self._first_s = -inf  # of the latest first token that an outcome told of
        self._counted: _Count | None = None
        self._started: deque[str] = deque(maxlen=_STARTED_MAX)  # latest reckoned first tokens, the last one last

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, work_id: str) -> bool:
        return work_id in self._rows

    @property
    def kv_tokens(self) -> float:
        """KV tokens its requests hold, prompts under way counted whole."""
        return self.table.held_tokens + self._grown_tokens

    @property
    def decoding(self) -> float:
        """Sequences that decode, of one engine of the width."""
        return self.table.decoding / self.width

    @property
    def decoding_kv_tokens(self) -> float:
        """KV tokens that a step reads, of one engine of the width."""
        return (self.table.decoding_held_tokens + self._grown_tokens) / self.width

    @property
    def chunk_tokens_max(self) -> float:
        """Prompt tokens that a step has room for beside those that decode, at least 1."""
        return max(self.batched_tokens - self.decoding, 1.0)

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens a second that all the width does at full chunks."""
        rate = self.model.prefill_tokens_per_s(self.decoding, self.decoding_kv_tokens, self.batched_tokens)
        return self._trim * self.width * rate

    def advance(self, now_s: float) -> None:
        """Reckon on to this time."""
        span_s = now_s - self.now_s
        if span_s < _SPAN_S_MIN:
            return
        if len(self._rows) == 0 and self.line.debt_tokens == 0.0:
            self.now_s = now_s
            return
        if self.history.is_due(self.now_s):
            self.history.note(self.now_s, self.totals())
        for _ in range(_SEGMENTS_MAX):
            took_s = self._reckon(span_s)
            span_s -= took_s
            self.now_s += took_s
            if span_s <= 0.0:
                break
        self.now_s = now_s
        if now_s - self._refreshed_s >= _REFRESH_S:
            self.refresh()

    def row(self, work_id: str) -> Row | None:
        """What the book knows of a request that runs."""
        return self._rows.get(work_id)

    def estimates(self) -> tuple[Floats, Floats, Floats]:
        """Log-means and log-sigmas before calibration and tokens generated, of all that run in it."""
        self.refresh()
        return self.table.estimates()

    def admit(self, work_id: str, cost: Cost, now_s: float) -> None:
        """A request is sent to it."""
        self.advance(now_s)
        self.table.add(
            work_id,
            prompt_tokens=cost.prompt_tokens,
            expected_tokens=cost.completion_tokens,
            log_mean=cost.log_mean,
            log_sigma=cost.log_sigma,
            tokens_max=cost.completion_tokens_max,
            sequences=cost.sequences,
            estimate=cost.estimate,
        )
        self._rows[work_id] = Row(cost, now_s, self.line.push(work_id, cost.prompt_tokens))

    def adopt(self, work_id: str, *, sequences: int, kv_tokens: int, now_s: float) -> None:
        """A request of which only the size is known runs already: it holds its tokens and grows no more."""
        self.advance(now_s)
        self.table.add(
            work_id,
            prompt_tokens=float(kv_tokens),
            expected_tokens=0.0,
            log_mean=0.0,
            log_sigma=0.1,
            tokens_max=1.0,
            sequences=sequences,
            estimate=(0.0, 0.1),
        )
        self.table.start(work_id, self._steps)

    def release(self, work_id: str, now_s: float) -> Row | None:
        """It is over, or given up: what it held is free. What the book knew of it, or None."""
        self.advance(now_s)
        if work_id in self.line:
            self.line.withdraw(work_id)
        self.table.remove(work_id)
        row = self._rows.pop(work_id, None)
        if not self._rows:
            self.line.owe(-inf, 0.0)
        if not len(self.table):
            self._grown_tokens = 0.0
        return row

    def overdue_sequences(self) -> int:
        """Sequences whose answer should long be over, and those that run since before a restart."""
        due = sum(
            row.cost.sequences
            for row in self._rows.values()
            if self.now_s < row.admitted_s + _OVERDUE * row.cost.answer_s + _OVERDUE_S
        )
        return self.table.sequences - due

    def first_token(self, work_id: str, now_s: float) -> None:
        """Its first token was seen."""
        self.advance(now_s)
        row = self._rows.get(work_id)
        if row is None:
            return
        if work_id in self.line:
            self.line.complete(work_id)
        else:
            self.table.unstart(work_id)
        self.table.start(work_id, self._steps)
        row.first_s = now_s

    def count(self, reading: EngineReading) -> None:
        """Set it right by the engine's own counters; of several engines, by their sums."""
        self._correct_steps(reading)
        if not self.sees_first_tokens:
            self._correct_line(reading)
        self.refresh()

    def correct_frontier(self, row: Row, first_s: float) -> None:
        """When its first token came the engine had come as far as this prompt's end. Where the reckoning of that time
        was elsewhere, and was not corrected since, the engine is behind or ahead by so much, and slower or faster.
        """
        if not self._rows:
            return
        then = self.history.at(first_s, self.now_s, self.totals())
        if then is None or first_s < self._first_s - _FIRST_S_STALE:
            return
        self._first_s = max(first_s, self._first_s)
        behind_tokens = then.frontier_tokens - row.frontier_tokens - (self.line.owed_tokens - then.owed_tokens)
        rate = self.prefill_tokens_per_s
        if abs(behind_tokens) < _BEHIND_S_MIN * rate:
            return
        self._adjust_trim(behind_tokens / rate)
        tokens = _DEBT_GAIN * behind_tokens
        if tokens > 0.0:
            self.line.owe(tokens, _DEBT_S_MAX * rate)
            return
        tokens = self.line.skip(-tokens)
        while tokens > 0.0 and len(self.line):
            self._first_token_reckoned(self.line.pop(), self.now_s)
            tokens = self.line.skip(tokens)

    def peak_tokens(self, cost: Cost) -> float:
        """The most KV tokens that are expected to be held at once, this request included."""
        if self.now_s - self._refreshed_s >= _REFRESH_PEAK_S:
            self.refresh()
        return self.table.peak_tokens(cost.prompt_tokens, cost.completion_tokens, cost.sequences)

    def totals(self) -> Totals:
        """What has passed up to now, in sums."""
        line = self.line
        return Totals(
            self._sequence_s,
            self._kv_token_s,
            line.position_tokens,
            line.attention,
            line.frontier_tokens,
            line.owed_tokens,
        )

    def passed(self) -> Passed:
        """The same, with the time and what is done of the first prompt."""
        return Passed(now_s=self.now_s, busy_s=self._busy_s, totals=self.totals(), done_tokens=self.line.done_tokens)

    def refresh(self) -> None:
        """Reckon anew what each request holds and has to come."""
        self.table.refresh(self._steps)
        self._grown_tokens = 0.0
        self._refreshed_s = self.now_s

    def _correct_steps(self, reading: EngineReading) -> None:
        """Sequences have gained as many tokens as the engine made steps since the reading before."""
        total, before = reading.steps_total, self._counted
        if total is None or not isfinite(total):
            return
        if before is not None:
            made = total - before.total
            if 0.0 <= made <= _STEPS_PER_S_MAX * (self.now_s - before.at_s) * self.width:
                self._steps = before.steps + made / self.width
        self._counted = _Count(total, self._steps, self.now_s)

    def _correct_line(self, reading: EngineReading) -> None:
        """As many prompts are unfinished as the engine has waiting, or one more an engine: the one under way."""
        if reading.waiting is None or reading.running is None:
            return
        sequences = self.table.sequences
        if not is_explained(abs(reading.running + reading.waiting - sequences), sequences):
            return  # others use the engine too, or a leak: its queue tells nothing about ours
        line = self.line
        before_tokens = line.frontier_tokens
        while len(line) > reading.waiting + self.width:
            self._first_token_reckoned(line.pop(), self.now_s)
        while len(line) < reading.waiting and self._started:
            work_id = self._started.pop()
            row = self._rows.get(work_id)
            if row is not None and work_id not in line:
                self.table.unstart(work_id)
                row.first_s = None
                line.put_back(work_id, row.cost.prompt_tokens)
        self._adjust_trim((before_tokens - line.frontier_tokens) / self.prefill_tokens_per_s)

    def _adjust_trim(self, behind_s: float) -> None:
        """The engine turned out to be so many seconds behind, or ahead where it is less than nothing."""
        factor = exp(-_TRIM_GAIN * min(max(behind_s, -1.0), 1.0))
        self._trim = min(max(self._trim * factor, _TRIM_MIN), _TRIM_MAX)

    def _reckon(self, span_s: float) -> float:
        """Reckon on by `span_s`, a few steps, or to the end of the first prompt: the soonest. How long that was."""
        line, table, width = self.line, self.table, self.width
        decoding, kv_tokens, left_tokens = self.decoding, self.decoding_kv_tokens, line.left_tokens
        took_s, ended = span_s, False
        if left_tokens > 0.0:
            budget_tokens = self.chunk_tokens_max
            chunk_tokens = min(budget_tokens, max(left_tokens / width, 1.0))
            context_tokens = line.done_tokens + chunk_tokens / 2.0
            step_s = self.model.step_s(decoding, chunk_tokens, kv_tokens, chunk_tokens * context_tokens)
            full_s = self.model.step_s(decoding, budget_tokens, kv_tokens, budget_tokens * context_tokens)
            rate = self._trim * width * budget_tokens / full_s
            took_s = span_s = min(span_s, _SEGMENT_STEPS * full_s)  # then there is more context to attend over
            head_tokens = line.head_tokens
            share = _HEAD_SHARE_UNSEEN if self.sees_first_tokens else 1.0
            to_end_s = (line.debt_tokens + max(share * head_tokens - line.done_tokens, 0.0)) / rate
            if len(line) and not self.sees_first_tokens:
                ended = to_end_s <= span_s
                took_s = min(span_s, to_end_s)
            line.advance(rate * took_s, head_share_max=share)
        elif decoding > 0.0:
            step_s = self.model.step_s(decoding, 0.0, kv_tokens)
        else:
            return span_s
        steps = took_s / step_s
        self._steps += steps
        self._grown_tokens += table.decoding * steps
        self._sequence_s += table.decoding * took_s
        self._kv_token_s += kv_tokens * width * took_s
        if table.sequences >= 2 * width:
            self._busy_s += took_s
        if ended:
            self._first_token_reckoned(line.pop(), self.now_s + took_s)
        return took_s

    def _first_token_reckoned(self, work_id: str, at_s: float) -> None:
        self.table.start(work_id, self._steps)
        self._rows[work_id].first_s = at_s
        self._started.append(work_id)
