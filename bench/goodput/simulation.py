"""The discrete-event simulation: clients, one policy, engines; no network between them.

Events in order of time; at one instant engine steps come first. A client gives up when no first token came in time, or
the whole answer did not; it then aborts what runs. A policy is told of an event and then ticked at the same instant.
A client that retries does so after a reject or an error, never after it gave up: 100 ms doubled each time up to 5 s,
plus or minus 20 %, or what the reject asked for if that is longer; at most 3 times.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any

from bench.goodput.adapter import Admitted, Rejected
from bench.goodput.policy import Policy, Verdict
from bench.goodput.request import Attempt, Request, State
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.engine_records import StepEvent

TICK_S = 0.1
RETRIES_MAX = 3
RETRY_FIRST_S, RETRY_CAP_S, RETRY_JITTER = 0.1, 5.0, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What befalls an engine.

    Attributes:
        engine: which, by its place.
        at_s, until_s: from when to when.
        slow: how many times longer a step takes; None: it is down: what runs is aborted, what comes is refused.
    """

    engine: int
    at_s: float
    until_s: float
    slow: float | None = None


class PolicyError(Exception):
    """The policy broke its contract: a verdict on a request that does not wait for one."""


class Simulation:
    """One run; `run` may be called once."""

    def __init__(
        self,
        engines: dict[str, EngineModel],
        policy: Policy,
        *,
        first_tokens: bool = False,
        reading_period_s: float | None = None,
        retries: bool = False,
        faults: Sequence[Fault] = (),
        seed: int = 0,
    ) -> None:
        """`reading_period_s`: how often the policy sees the engines' counts, None: never."""
        self.engines = engines
        self.attempts: list[Attempt] = []
        self._policy = policy
        self._first_tokens = first_tokens
        self._reading_period_s = reading_period_s
        self._retries_max = RETRIES_MAX if retries else 0
        self._random = Random(seed)
        self._now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._pushed = 0
        self._open: dict[str, Attempt] = {}
        self._followed = 0  # requests of the window that have not come to their end
        self._window = (0.0, 0.0)
        self._down: set[str] = set()
        names = list(engines)
        for fault in faults:
            self._at(fault.at_s, self._fault_begins, (names[fault.engine], fault))
            self._at(fault.until_s, self._fault_ends, (names[fault.engine], fault))

    def run(self, requests: Iterable[Request], window: tuple[float, float]) -> None:
        """Until each request that arrived in the window has ended."""
        self._window = window
        for request in requests:
            self._followed += self._follows(request)
            self._at(request.at_s, self._arrive, Attempt(request, 0, request.at_s))
        self._at(TICK_S, self._ticked, 1)
        if self._reading_period_s is not None:
            self._at(self._reading_period_s, self._read, 1)
        while self._followed > 0:
            self._next()

    def _follows(self, request: Request) -> bool:
        return self._window[0] <= request.at_s < self._window[1]

    def _at(self, at_s: float, act: Callable[[Any], None], on: Any) -> None:
        self._pushed += 1
        heappush(self._heap, (at_s, self._pushed, act, on))

    def _next(self) -> None:
        """The earliest event; an engine's step before anything else of the same instant."""
        at_s = self._heap[0][0]
        stepping: str | None = None
        for name, engine in self.engines.items():
            step_s = engine.next_step_at_s()
            if step_s is not None and step_s <= at_s:
                at_s, stepping = step_s, name
        self._now_s = at_s
        if stepping is not None:
            self._step(self.engines[stepping])
        else:
            _, _, act, on = heappop(self._heap)
            act(on)

    # Engines

    def _step(self, engine: EngineModel) -> None:
        for event in engine.advance(self._now_s):
            if event.first_tokens or event.finished:
                self._came_out(event)

    def _came_out(self, event: StepEvent) -> None:
        for each in event.first_tokens:
            self._open[each].first_s = event.end_s
            if self._first_tokens:
                self._policy.first_token(event.end_s, each)
        for each in event.finished:
            self._finished(self._open[each], 200)
        if event.finished or self._first_tokens:
            self._tick()

    def _finished(self, attempt: Attempt, status: int, tokens: int | None = None) -> None:
        """An admitted attempt's response ended."""
        admitted_s = attempt.admitted_s
        assert admitted_s is not None
        ttft_s = None if attempt.first_s is None else attempt.first_s - admitted_s
        tokens = attempt.request.completion_tokens if tokens is None else tokens
        self._policy.finish(self._now_s, attempt.id, status, tokens, ttft_s, self._now_s - admitted_s)
        self._end(attempt, State.DONE if status == 200 else State.FAILED, status, None)

    def _fault_begins(self, on: tuple[str, Fault]) -> None:
        name, fault = on
        engine = self.engines[name]
        if fault.slow is not None:
            engine.cost = engine.profile.cost.scaled(fault.slow)
            return
        self._down.add(name)
        for attempt in [each for each in self._open.values() if each.state is State.RUNNING and each.engine == name]:
            tokens = engine.generated_tokens(attempt.id)
            engine.abort(attempt.id, self._now_s)
            self._finished(attempt, 503, tokens)
        self._tick()

    def _fault_ends(self, on: tuple[str, Fault]) -> None:
        name, _ = on
        self._down.discard(name)
        self.engines[name].cost = self.engines[name].profile.cost

    # Clients

    def _arrive(self, attempt: Attempt) -> None:
        request = attempt.request
        self.attempts.append(attempt)
        self._open[attempt.id] = attempt
        self._at(self._now_s + request.first_timeout_s, self._first_timeout, attempt)
        self._apply(
            self._policy.arrive(
                self._now_s,
                attempt.id,
                request.tenant,
                request.prompt_tokens,
                request.max_tokens,
                request.log_mean,
                request.log_sigma,
                request.ttft_budget_s,
                request.tpot_target_s,
                request.first_timeout_s,
            )
        )

    def _first_timeout(self, attempt: Attempt) -> None:
        if attempt.ended_s is not None:
            return
        if attempt.first_s is None:
            self._leave(attempt)
        else:
            self._at(attempt.arrived_s + attempt.request.whole_timeout_s, self._whole_timeout, attempt)

    def _whole_timeout(self, attempt: Attempt) -> None:
        if attempt.ended_s is None:
            self._leave(attempt)

    def _leave(self, attempt: Attempt) -> None:
        if attempt.state is State.RUNNING:
            self.engines[attempt.engine].abort(attempt.id, self._now_s)
        self._policy.cancel(self._now_s, attempt.id)
        self._end(attempt, State.LEFT, 0, None)
        self._tick()

    def _end(self, attempt: Attempt, state: State, status: int, retry_after_s: float | None) -> None:
        attempt.state, attempt.status, attempt.ended_s = state, status, self._now_s
        del self._open[attempt.id]
        if state in {State.REJECTED, State.FAILED} and attempt.number < self._retries_max:
            backoff_s = min(RETRY_FIRST_S * 2**attempt.number, RETRY_CAP_S)
            backoff_s *= self._random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER)
            at_s = self._now_s + max(backoff_s, retry_after_s or 0.0)
            self._at(at_s, self._arrive, Attempt(attempt.request, attempt.number + 1, at_s))
        else:
            self._followed -= self._follows(attempt.request)

    # The policy

    def _ticked(self, number: int) -> None:
        self._tick()
        self._at((number + 1) * TICK_S, self._ticked, number + 1)

    def _tick(self) -> None:
        self._apply(self._policy.tick(self._now_s))

    def _read(self, number: int) -> None:
        for name, engine in self.engines.items():
            if name not in self._down:
                counters = engine.counters
                self._policy.reading(
                    self._now_s,
                    name,
                    engine.running,
                    engine.waiting,
                    engine.kv_usage,
                    counters.steps,
                    counters.prompt_tokens + counters.completion_tokens,
                )
        self._tick()
        assert self._reading_period_s is not None
        self._at((number + 1) * self._reading_period_s, self._read, number + 1)

    def _apply(self, verdicts: Iterable[Verdict]) -> None:
        waiting = deque(verdicts)
        while waiting:
            verdict = waiting.popleft()
            attempt = self._open.get(verdict[0])
            if attempt is None or attempt.state is not State.QUEUED:
                raise PolicyError(f"{verdict} on a request that does not wait")
            if len(verdict) == 3:
                waiting.extend(self._admit(attempt, verdict))
            else:
                self._reject(attempt, verdict)

    def _admit(self, attempt: Attempt, verdict: Admitted) -> list[Verdict]:
        """Send it to its engine; what the policy decides next if that refuses it."""
        name = verdict[2]
        attempt.state, attempt.engine, attempt.admitted_s = State.RUNNING, name, self._now_s
        request = attempt.request
        if name in self._down:
            status = 503
        elif self.engines[name].submit(attempt.id, request.prompt_tokens, request.completion_tokens, self._now_s):
            return []
        else:
            status = 429
        self._finished(attempt, status, 0)
        return self._policy.tick(self._now_s)

    def _reject(self, attempt: Attempt, verdict: Rejected) -> None:
        self._end(attempt, State.REJECTED, verdict[2], verdict[3])
