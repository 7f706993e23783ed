"""The controller of one pool: keeps its books and its queue, and lets the rules decide.

It never waits and never asks for the time: every call says what the time is. Its caller

* takes `take_verdicts()` after every other call: a verdict on one request may come out of a call about another,
* calls `tick` no later than `next_wake_s()`, because between two such moments nothing depends on the time,
* calls `release` once for every id it submitted, when that request's stream has ended.
"""

from collections.abc import Iterable, Mapping

from tidegate.admission import books
from tidegate.admission.cost import Cost, price
from tidegate.admission.decision import Admit, Decision, Enqueue, Reject, Rule, Verdict
from tidegate.admission.drain_rate import DrainRate
from tidegate.admission.ledger import Booking, Ledger
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load, capacity, queue_len_max
from tidegate.admission.outcome import Outcome
from tidegate.admission.pace import Pace
from tidegate.admission.queues.base import Ahead, Queue, Waiting
from tidegate.admission.queues.round_robin import RoundRobin
from tidegate.admission.ramp import Ramp
from tidegate.admission.rules import decide, evict, reconsider
from tidegate.admission.settled import Settled
from tidegate.admission.snapshot import Snapshot
from tidegate.admission.work import Work

_NOBODY = Ahead(0, 0.0)


class Controller:
    """Admission of one pool of engines.

    Args:
        limits: of one engine.
        engines: how many there are; they count as alive until `set_engines_alive` says otherwise.
        now_s: the time.
        ramp: start at a quarter of the limits and rise to all of them within ten seconds, after a start and after an
            outage of every engine.
    """

    def __init__(self, limits: Limits, *, engines: int = 1, now_s: float, ramp: bool = True) -> None:
        self._limits = limits
        self._engines = self._alive = max(engines, 0)
        self._ramp = Ramp(start_s=now_s, enabled=ramp)
        self._ledger = Ledger()
        self._queue: Queue = RoundRobin()
        self._pace = Pace()
        self._drain_rate = DrainRate()
        self._settled = Settled()
        self._verdicts: dict[str, Verdict] = {}  # of queued works, until taken; a released id leaves it
        self._draining = False
        self._now_s = now_s

    def submit(self, work: Work, now_s: float) -> Decision:
        """Decide on a request that arrives; its id must not be waiting or running."""
        assert work.id not in self._queue, f"{work.id} is already waiting"
        assert work.id not in self._ledger, f"{work.id} is already running"
        now_s = self._advance(now_s)
        load = self._load(work, self.price(work), arriving=True)
        decision = decide(work, load, self._limits, now_s=now_s)
        if isinstance(decision, Admit):
            self._book(work, decision, load.cost, now_s)
        elif isinstance(decision, Enqueue):
            if load.makes_room:
                self._make_room(work, load, now_s)
            self._queue.push(
                Waiting(
                    work=work,
                    since_s=now_s,
                    expires_at_s=decision.expires_at_s,
                    cost_s=load.cost.bottleneck_s,
                )
            )
            self._drain_rate.watch(waiting=True, now_s=now_s)
        return decision

    @property
    def at_ease(self) -> bool:
        """Nobody waits and less than half of everything is booked: a look that costs nothing, most of the time
        enough.
        """
        if len(self._queue) or self._draining or not self._alive:
            return False
        share = self._alive * self._ramp.share(self._now_s) / 2.0
        ledger, limits = self._ledger, self._limits
        return ledger.sequences < share * limits.slots and ledger.kv_tokens < share * limits.kv_tokens

    def preview(self, work: Work, now_s: float) -> Reject | None:
        """The refusal that `submit` would certainly return now for `work` or a larger one; changes nothing.

        None also where the passing of time has consequences that no call has brought in yet.
        """
        due_s = self._due_s()
        if due_s is not None and now_s >= due_s:
            return None
        load = self._load(work, self.price(work), arriving=True, now_s=now_s)
        decision = decide(work, load, self._limits, now_s=now_s)
        return decision if isinstance(decision, Reject) else None

    def release(self, work_id: str, now_s: float) -> bool:
        """The stream of this request has ended: withdraw it, or give back what it holds; False where it did neither."""
        now_s = self._advance(now_s)
        self._verdicts.pop(work_id, None)
        released = self._queue.withdraw(work_id) or self._ledger.release(work_id)
        if released:
            self._serve(now_s)
        return released

    def settle(self, outcome: Outcome, now_s: float) -> bool:
        """Learn from a finished request of any replica, once; False where its id was settled before or is empty."""
        now_s = self._advance(now_s)
        if not outcome.id or not self._settled.first_time((outcome.replica, outcome.id), now_s):
            return False
        self._pace.learn(outcome)
        if self._ledger.settle(outcome.id):
            self._serve(now_s)
        return True

    def tick(self, now_s: float) -> None:
        """Bring in what the time has brought: expiries, the ramp, the drain rate."""
        self._advance(now_s)

    def take_verdicts(self) -> list[Verdict]:
        """Final verdicts on queued requests since the last call, in the order they were reached."""
        verdicts = list(self._verdicts.values())
        self._verdicts.clear()
        return verdicts

    def next_wake_s(self) -> float | None:
        """When `tick` must be called at the latest; None while nobody waits."""
        return self._due_s() if len(self._queue) else None

    def reconfigure(self, limits: Limits, engines: int, now_s: float) -> None:
        """Take over new limits and another number of engines; engines that are down stay down, new ones count as alive.

        Nothing that runs or waits is refused for it, but what can never fit any more is when its turn comes.
        """
        now_s = self._advance(now_s)
        self._limits = limits
        alive = self._alive + engines - self._engines
        self._engines = max(engines, 0)
        self._set_alive(alive, now_s)

    def set_engines_alive(self, count: int, now_s: float) -> None:
        """How many engines are alive, at least 0."""
        self._set_alive(count, self._advance(now_s))

    def drain(self, now_s: float) -> None:
        """Shut down: refuse what waits and what is still to come; what runs is let run."""
        now_s = self._advance(now_s)
        self._draining = True
        for waiting in self._queue.clear():
            self._conclude(waiting, now_s)
        self._drain_rate.watch(waiting=False, now_s=now_s)

    def snapshot(self, now_s: float) -> Snapshot:
        """The gauges; changes nothing."""
        share, alive, ledger = self._ramp.share(now_s), self._alive, self._ledger
        return Snapshot(
            in_flight=len(ledger),
            orphans=ledger.orphans,
            sequences=ledger.sequences,
            kv_tokens=ledger.kv_tokens,
            over_sequences=ledger.over_sequences,
            over_kv_tokens=ledger.over_kv_tokens,
            sequences_max=capacity(self._limits.slots, engines=alive, share=share) if alive else 0,
            kv_tokens_max=capacity(self._limits.kv_tokens, engines=alive, share=share) if alive else 0,
            queue_len=len(self._queue),
            queue_len_max=queue_len_max(self._limits.queue_len, engines=alive),
            queued_s=self._queue.cost_s,
            engines=alive,
            share=share,
            tau_s=self._pace.tau_s,
            drain_rate=self._drain_rate.value,
            draining=self._draining,
        )

    def price(self, work: Work) -> Cost:
        """What `work` would ask of an engine, at its limits and its pace of now; changes nothing."""
        return price(work, self._limits, tau_s=self._pace.tau_s)

    def dump_books(self, now_s: float) -> list[dict[str, object]]:
        """What runs, as plain records for a state file: `id`, `sequences`, `kv_tokens`, `expires_in_s`."""
        return books.dump(self._ledger.items(), now_s)

    def restore_books(self, records: Iterable[Mapping[str, object]], now_s: float) -> int:
        """Book what an earlier process left running; the number of records that were of use."""
        now_s = self._advance(now_s)
        return sum(self._ledger.adopt(work_id, booking) for work_id, booking in books.read(records, now_s))

    def dump_pace(self) -> dict[str, float]:
        """What was learned of the engines' pace, for a state file."""
        return {"tau_s": self._pace.tau_s}

    def restore_pace(self, record: Mapping[str, object]) -> None:
        """Take over what an earlier process learned; ValueError where it is damaged, an empty record says nothing."""
        if record:
            self._pace.restore(record.get("tau_s"))

    def _load(self, work: Work, cost: Cost, *, arriving: bool, now_s: float | None = None) -> Load:
        queue = self._queue
        ahead, makes_room = _NOBODY, False
        if arriving and len(queue):
            ahead = queue.ahead(work, cost.bottleneck_s)
            full = len(queue) == queue_len_max(self._limits.queue_len, engines=self._alive)
            # without an engine nobody is refused for a newcomer's sake: waiting is all there is to have
            makes_room = full and self._alive > 0 and queue.overflow(work, cost.bottleneck_s) is not None
        return Load(
            cost=cost,
            engines=self._alive,
            share=self._ramp.share(self._now_s if now_s is None else now_s),
            sequences=self._ledger.sequences,
            kv_tokens=self._ledger.kv_tokens,
            queue_len=len(queue),
            queued_s=queue.cost_s,
            ahead_len=ahead.requests,
            ahead_s=ahead.cost_s,
            makes_room=makes_room,
            drain_rate=self._drain_rate.value,
            draining=self._draining,
        )

    def _due_s(self) -> float | None:
        """The next moment at which time alone changes something."""
        moments = [self._ledger.next_expiry_s()]
        if len(self._queue):
            moments += (
                self._queue.next_expiry_s(),
                self._drain_rate.closes_at_s,
                self._ramp.next_step_s(self._now_s),
            )
        return min((moment for moment in moments if moment is not None), default=None)

    def _advance(self, now_s: float) -> float:
        """Bring in everything that has fallen due; the time, which never goes back."""
        due_s = self._due_s()
        now_s = self._now_s = max(now_s, self._now_s)
        if due_s is not None and now_s >= due_s:
            self._ledger.expire(now_s)
            self._drain_rate.roll(engines=self._alive, now_s=now_s)
            for waiting in self._queue.expire(now_s):
                self._conclude(waiting, now_s)
            self._serve(now_s)
        return now_s

    def _set_alive(self, count: int, now_s: float) -> None:
        if self._alive == 0 and count > 0:
            self._ramp.restart(now_s)
        self._alive = max(count, 0)
        self._serve(now_s)

    def _serve(self, now_s: float) -> None:
        """Give every queued request its verdict whose turn has come, until one has to wait."""
        while len(self._queue) and self._queue.pop_ready(lambda waiting: self._judge(waiting, now_s)) is not None:
            pass
        self._drain_rate.watch(waiting=len(self._queue) > 0, now_s=now_s)

    def _make_room(self, work: Work, load: Load, now_s: float) -> None:
        """Refuse the one in the full queue that `work` has a better claim than."""
        victim = self._queue.overflow(work, load.cost.bottleneck_s)
        assert victim is not None, f"nobody makes room for {work.id}"
        self._queue.withdraw(victim.work.id)
        self._verdicts[victim.work.id] = evict(victim, load, self._limits, now_s=now_s)

    def _judge(self, waiting: Waiting, now_s: float) -> Verdict | None:
        """The verdict on a queued request, with all that follows from it but its leaving the queue."""
        cost = self.price(waiting.work)
        verdict = reconsider(waiting, self._load(waiting.work, cost, arriving=False), self._limits, now_s=now_s)
        if verdict is None:
            return None
        self._verdicts[verdict.id] = verdict
        if isinstance(verdict, Admit):
            self._book(waiting.work, verdict, cost, now_s)
        return verdict

    def _conclude(self, waiting: Waiting, now_s: float) -> None:
        """The verdict on a request that has left the queue for good."""
        verdict = self._judge(waiting, now_s)
        assert isinstance(verdict, Reject), f"{waiting.work.id} left the queue without a refusal"

    def _book(self, work: Work, admit: Admit, cost: Cost, now_s: float) -> None:
        ends_in_s = min(work.client_timeout_s, 2.0 * (cost.ttft_s + cost.answer_s) + 5.0)
        booking = Booking(
            sequences=cost.sequences,
            kv_tokens=cost.kv_tokens,
            over=admit.reason.rule is Rule.NOT_REFUSABLE,
            ends_at_s=now_s + ends_in_s,
        )
        self._ledger.book(work.id, booking)
        self._drain_rate.admitted(cost.bottleneck_s)
