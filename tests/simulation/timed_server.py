"""A server of models without tokens under load, with and without admission: an event-driven model of one pool.

The server has so many workers and no bound on its own line, first come first served; a worker takes a log-normal time
by the size of the input. Callers wait `objective_s` for their answer and leave; the server works on what it was given
all the same, as engines do that cannot cancel. Time is simulated and every draw comes from one seed.
"""

import heapq
from collections import deque
from dataclasses import dataclass
from math import exp
from random import Random

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Enqueue
from tidegate.admission.limits import GATES_DEFAULT, GateName, Limits
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.work import Work
from tidegate_estimator.service_ticket import open_service_ticket
from tidegate_estimator.service_time import ServiceTimes

MEDIAN_S_BY_SIZE = {1_000: 0.02, 10_000: 0.06, 100_000: 0.2}
"""Median service time by the size of the input; all sizes are as frequent."""
MODEL = "resnet"


@dataclass(slots=True, kw_only=True)
class Job:
    """One request; times in seconds. `ticket` is what it was admitted with."""

    id: str
    size: int
    service_s: float
    ticket: bytes = b""
    sent_s: float = 0.0
    left: bool = False


@dataclass(slots=True, kw_only=True)
class Result:
    """What came of a run, after its warm-up.

    Attributes:
        good, good_work_s: answers within the objective, and their service seconds.
        in_server_s: the time they spent in the server together.
    """

    span_s: float = 0.0
    good: int = 0
    good_work_s: float = 0.0
    in_server_s: float = 0.0


class TimedServer:
    """One run.

    Args:
        workers: of the server; load: offered, in what all of them can do.
        sigma: of ln(service time) within one size.
        gated: whether the service gate is in force.

    Attributes:
        answers: all that came to callers that had not left.
    """

    def __init__(
        self, *, workers: int, load: float, objective_s: float, sigma: float = 0.3, gated: bool = True, seed: int = 1
    ) -> None:
        self._random = Random(seed)
        self._workers, self._sigma, self._objective_s = workers, sigma, objective_s
        gates = GATES_DEFAULT if gated else tuple(name for name in GATES_DEFAULT if name is not GateName.SERVICE)
        limits = Limits(gates=gates, slots=100_000, queue_len=200)
        self.controller = Controller(limits, now_s=0.0, ramp=False)
        self.times = ServiceTimes()
        self.answers = self.arrived_after_warm_up = 0
        mean_s = sum(MEDIAN_S_BY_SIZE.values()) / len(MEDIAN_S_BY_SIZE) * exp(sigma**2 / 2)
        self.rate_per_s = load * workers / mean_s
        self._events: list[tuple[float, int, str, Job]] = []
        self._serial = 0
        self._line: deque[Job] = deque()
        self._busy = 0
        self._waiting: dict[str, Job] = {}
        self._result = Result()

    def run(self, *, warm_up_s: float, span_s: float) -> Result:
        """Run for the warm-up and the span; what came of the latter."""
        self._result.span_s = span_s
        end_s, now_s = warm_up_s + span_s, 0.0
        self._push(self._random.expovariate(self.rate_per_s), "arrive", self._job())
        while self._events:
            now_s, _, kind, job = heapq.heappop(self._events)
            if now_s >= end_s:
                break
            wake_s = self.controller.next_wake_s()
            if wake_s is not None and wake_s < now_s:
                self.controller.tick(wake_s)
                self._take_verdicts(wake_s)
            getattr(self, f"_{kind}")(job, now_s, now_s >= warm_up_s)
            self._take_verdicts(now_s)
        return self._result

    def _arrive(self, job: Job, now_s: float, counts: bool) -> None:
        self.arrived_after_warm_up += counts
        self._push(now_s + self._random.expovariate(self.rate_per_s), "arrive", self._job())
        estimate = self.times.estimate(MODEL, job.size)
        work = Work(
            id=job.id,
            stream=False,
            service_s=estimate.mean_s,
            ttft_budget_s=self._objective_s,
            client_timeout_s=self._objective_s,
            hold_s_max=30.0,
        )
        decision = self.controller.submit(work, now_s)
        if isinstance(decision, Admit):
            self._send(job, decision, now_s)
        elif isinstance(decision, Enqueue):
            self._waiting[job.id] = job
        else:
            return
        self._push(now_s + self._objective_s, "leave", job)

    def _leave(self, job: Job, now_s: float, _: bool) -> None:
        """The caller has waited long enough; where the answer came, nothing happens."""
        if not job.left and self.controller.release(job.id, now_s):
            job.left = True
            self._waiting.pop(job.id, None)
            self._learn(job, now_s, cut=True)
            self.controller.settle(Outcome(id=job.id, ending=Ending.CLIENT_CANCELLED), now_s)

    def _send(self, job: Job, admit: Admit, now_s: float) -> None:
        estimate = self.times.estimate(MODEL, job.size)
        job.ticket = estimate.ticket(trust=admit.trust)
        job.sent_s = now_s
        self._line.append(job)
        self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        while self._line and self._busy < self._workers:
            self._busy += 1
            job = self._line.popleft()
            self._push(now_s + job.service_s, "finish", job)

    def _finish(self, job: Job, now_s: float, counts: bool) -> None:
        self._busy -= 1
        self._begin(now_s)
        if job.left:
            return
        job.left = True
        self.controller.release(job.id, now_s)
        e2e_s = now_s - job.sent_s
        self.controller.settle(Outcome(id=job.id, ending=Ending.COMPLETE, e2e_s=e2e_s), now_s)
        self._learn(job, now_s, cut=False)
        self.answers += 1
        if counts:
            self._result.in_server_s += e2e_s
            self._result.good += 1
            self._result.good_work_s += job.service_s

    def _learn(self, job: Job, now_s: float, *, cut: bool) -> None:
        ticket = open_service_ticket(job.ticket)
        if ticket is not None:
            self.times.learn(ticket, now_s - job.sent_s, cut=cut)

    def _take_verdicts(self, now_s: float) -> None:
        for verdict in self.controller.take_verdicts():
            job = self._waiting.pop(verdict.id, None)
            if job is None:
                continue
            if isinstance(verdict, Admit):
                self._send(job, verdict, now_s)
            else:
                job.left = True

    def _job(self) -> Job:
        self._serial += 1
        size = self._random.choice(list(MEDIAN_S_BY_SIZE))
        service_s = MEDIAN_S_BY_SIZE[size] * self._random.lognormvariate(0.0, self._sigma)
        return Job(id=f"j{self._serial}", size=size, service_s=service_s)

    def _push(self, at_s: float, kind: str, job: Job) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at_s, self._serial, kind, job))
