"""The controller of one pool: keeps its books and its queue, and lets the rules decide.

It never waits and never asks for the time: every call says what the time is. Its caller

* takes `take_verdicts()` after every other call: a verdict on one request may come out of a call about another,
* calls `tick` no later than `next_wake_s()`, because between two such moments nothing depends on the time,
* calls `release` once for every id it submitted, when that request's stream has ended,
* tells what else becomes known: `settle` for an outcome, `read` for an engine's own counters, `first_token` where the
  answer can be seen.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf

from tidegate.admission.asked_delay import AskedDelay
from tidegate.admission.attempt import Attempt
from tidegate.admission.contracts import Contracts
from tidegate.admission.cost import Cost
from tidegate.admission.decision import Admit, Decision, Enqueue, Reason, Reject, Rule, Verdict
from tidegate.admission.drain_rate import DrainRate
from tidegate.admission.fleet import Fleet
from tidegate.admission.flights import Flight
from tidegate.admission.guards import Guards
from tidegate.admission.in_flight import InFlight
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.prices import Prices
from tidegate.admission.queue_len import QueueLen
from tidegate.admission.queues.base import Ahead, Queue, Waiting
from tidegate.admission.queues.fair import FairQueue
from tidegate.admission.reading import EngineReading
from tidegate.admission.records import as_record
from tidegate.admission.retries import Retries
from tidegate.admission.rules import decide, evict, gates_of, reconsider, supersede
from tidegate.admission.settled import Settled
from tidegate.admission.snapshot import Snapshot
from tidegate.admission.step_model import StepModel
from tidegate.admission.utilisation import utilisation
from tidegate.admission.work import Work

_NOBODY = Ahead(0, 0.0)
_SERVE_EVERY_S = 0.002  # where nothing was given back, the passing of less time lets nobody in
_LOOK_S_MIN, _LOOK_S_MAX, _LOOKS = 0.005, 0.1, 4.0


class Controller:
    """Admission of one pool of engines.

    Args:
        limits: of one engine.
        engines: how many there are; they count as alive until `set_engines_alive` says otherwise.
        names: their addresses, where the controller chooses among them; `engines` is then their number.
        now_s: the time.
        ramp: start at a quarter of the limits and rise to all of them within ten seconds, after a start and after an
            outage of every engine.
        model_of: makes the step model of one engine.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        engines: int = 1,
        names: Sequence[str] = (),
        now_s: float,
        ramp: bool = True,
        model_of: Callable[[], StepModel] = StepModel,
    ) -> None:
        self._limits = limits
        self._gates = gates_of(limits)
        self._engines = max(len(names) or engines, 0)
        self._fleet = Fleet(limits, count=engines, names=names, now_s=now_s, ramp=ramp, model_of=model_of)
        self._running = InFlight(self._fleet)
        self._queue: Queue = FairQueue(limits.order, alpha=limits.alpha, fair=limits.fair)
        self._queue_len = QueueLen(now_s)
        self._prices = Prices(now_s)
        self._drain_rate = DrainRate()
        self._guards = Guards(limits)
        self._asked_delay = AskedDelay()
        self._contracts = Contracts()
        self._retries = Retries()
        self._settled = Settled()
        self._verdicts: dict[str, Verdict] = {}  # of queued works, until taken; a released id leaves it
        self._draining = False
        self._now_s = self._served_s = now_s

    def submit(self, work: Work, now_s: float) -> Decision:
        """Decide on a request that arrives; its id must not be waiting or running."""
        assert work.id not in self._queue, f"{work.id} is already waiting"
        assert work.id not in self._running, f"{work.id} is already running"
        now_s = self._advance(now_s)
        self._fleet.pace(work.tpot_target_s)
        first_s = self._take_over(work, now_s)
        load = self._load(work, self.price(work), arriving=True, first_s=first_s)
        decision = decide(work, load, self._limits, now_s=now_s, gates=self._gates)
        if isinstance(decision, Reject):
            self._retries.ended(work.attempt, now_s)
            return decision
        self._contracts.let_in(work, load.cost.tokens, now_s)
        if isinstance(decision, Admit):
            self._book(work, decision, load.cost, now_s)
        else:
            self._enqueue(work, decision, load, first_s)
        return decision

    @property
    def at_ease(self) -> bool:
        """Nobody waits and less than half of everything is booked: a look that costs nothing, most of the time
        enough.
        """
        if len(self._queue) or self._draining or not self._fleet.width:
            return False
        book = self._fleet.books[0]
        share = self._fleet.width * book.share / 2.0
        ledger = self._running.ledger
        return ledger.sequences < share * book.slots_each and ledger.kv_tokens < share * book.kv_tokens_each

    def preview(self, work: Work, now_s: float) -> Reject | None:
        """The refusal that `submit` would certainly return now for `work` or a larger one; books nothing."""
        now_s = self._advance(now_s)
        load = self._load(work, self.price(work), arriving=True, first_s=now_s)
        decision = decide(work, load, self._limits, now_s=now_s, gates=self._gates)
        return decision if isinstance(decision, Reject) else None

    def refused_unread(self, attempt: Attempt | None, now_s: float) -> None:
        """A request was refused for what `preview` said, and never submitted."""
        self._retries.ended(attempt, self._advance(now_s))

    def release(self, work_id: str, now_s: float) -> bool:
        """The stream of this request has ended: withdraw it, or give back what it holds; False where it did neither."""
        now_s = self._advance(now_s)
        self._verdicts.pop(work_id, None)
        if self._queue.withdraw(work_id):
            self._retries.left(work_id, now_s)
            self._contracts.turned_away(work_id, now_s)
            self._serve(now_s)
            return True
        if not self._running.end(work_id, now_s):
            return False
        self._contracts.ended(work_id, now_s)
        self._guards.watch(in_flight=len(self._running), now_s=now_s)
        self._serve(now_s)
        return True

    def settle(self, outcome: Outcome, now_s: float) -> bool:
        """Learn from a finished request of any replica, once; False where its id was settled before or is empty."""
        now_s = self._advance(now_s)
        if not outcome.id or not self._settled.first_time((outcome.replica, outcome.id), now_s):
            return False
        self._prices.learn_pace(outcome)
        flight = self._running.settle(outcome.id)
        silent_s = 0.0 if flight is None else flight.silent_s(outcome, now_s)
        self._fleet.judge(outcome, now_s, silent_s=silent_s)
        self._guards.learn(outcome, now_s)
        self._asked_delay.learn(outcome, now_s)
        if flight is not None:
            self._learn(flight, outcome, now_s)
            if outcome.ending is not Ending.COMPLETE:
                self._retries.ended(flight.work.attempt, now_s)
            self._contracts.settle(outcome.id, flight.tokens_taken(outcome, self._prices.tau_s, now_s), now_s)
        if self._running.settle_orphan(outcome.id, now_s):
            self._serve(now_s)
        return True

    def first_token(self, work_id: str, now_s: float) -> None:
        """The first token of a running request was seen; from now on one that was not seen has not come."""
        now_s = self._advance(now_s)
        if not self._fleet.sees_first_tokens:
            self._fleet.see_first_tokens()
        flight = self._running.running(work_id)
        if flight is not None:
            flight.book.first_token(work_id, now_s)
            self._serve(now_s)

    def read(self, engine: str, reading: EngineReading, now_s: float) -> None:
        """Take in what an engine says of itself; of a pooled book whose engines are not followed, sums and means."""
        if not len(self._queue):  # nobody to let in: the other engines' books need not be looked at
            self._fleet.read(engine, reading, max(now_s, self._now_s))
            return
        now_s = self._advance(now_s)
        self._fleet.read(engine, reading, now_s)
        self._serve(now_s)

    def missed(self, engine: str, now_s: float, *, began_anew: bool = False) -> None:
        """An engine could not be read; `began_anew`: what answers there now is not what was read before."""
        self._fleet.missed(engine, max(now_s, self._now_s), began_anew=began_anew)

    def follow(self, engines: Sequence[str], now_s: float, *, steered: bool, metered: bool) -> None:
        """These are the engines now, by address; none at all is a pool that refuses with 503 or lets wait.

        Args:
            engines: their addresses.
            now_s: the time.
            steered: the controller chooses among them.
            metered: `read` is going to tell of each, and `missed` where it cannot.
        """
        now_s = self._advance(now_s)
        if engines:
            self.reconfigure(self._limits, len(engines), now_s, names=engines if steered else ())
        self._fleet.meter(engines if metered else (), now_s)
        self._guards.memory_free_mib = self._fleet.memory_free_mib
        self._set_alive(len(engines), now_s)

    def tick(self, now_s: float) -> None:
        """Bring in what the time has brought: expiries, prompts done, the ramp, the drain rate."""
        self._serve(self._advance(now_s))

    @property
    def has_verdicts(self) -> bool:
        """Whether `take_verdicts` has something to return."""
        return bool(self._verdicts)

    def take_verdicts(self) -> list[Verdict]:
        """Final verdicts on queued requests since the last call, in the order they were reached."""
        verdicts = list(self._verdicts.values())
        self._verdicts.clear()
        return verdicts

    def next_wake_s(self) -> float | None:
        """When `tick` must be called at the latest; None while nobody waits.

        While somebody does, prompts get done and rates fill up with time alone: a look every tenth of a second, and
        more often the shorter the shortest backlog is.
        """
        if not len(self._queue):
            return None
        left_s = min((book.prefill_left_s for book in self._fleet if book.prefilling), default=inf)
        look_s = self._now_s + min(max(left_s / _LOOKS, _LOOK_S_MIN), _LOOK_S_MAX)
        due_s = self._due_s()
        return look_s if due_s is None else min(look_s, due_s)

    def reconfigure(self, limits: Limits, engines: int, now_s: float, *, names: Sequence[str] = ()) -> None:
        """Take over new limits and other engines; engines that are down stay down, new ones count as alive.

        Nothing that runs or waits is refused for it, but what can never fit any more is when its turn comes. Those that
        wait keep their places where the order stays, and else are put in the new order. Those that run in an engine
        that leaves run on, and count for no other; where `names` come or go as a whole, those that run are spread over
        the books that there are then.
        """
        now_s = self._advance(now_s)
        engines = max(len(names) or engines, 0)
        before, self._limits, self._gates = self._limits, limits, gates_of(limits)
        self._fleet.reconfigure(limits, names)
        self._running.rebook(now_s)
        self._guards.reconfigure(limits)
        if (before.order, before.alpha, before.fair) != (limits.order, limits.alpha, limits.fair):
            waiting = self._queue.clear()
            self._queue = FairQueue(limits.order, alpha=limits.alpha, fair=limits.fair)
            for each in waiting:
                self._queue.push(each)
        alive = self._fleet.width + engines - self._engines
        self._engines = engines
        self._set_alive(alive, now_s)

    def unfollow(self, now_s: float) -> None:
        """Nothing more is going to be told of any engine."""
        self._fleet.meter((), self._advance(now_s))
        self._guards.memory_free_mib = None

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
        """The gauges; books are reckoned on to now."""
        self._fleet.advance(max(now_s, self._now_s))
        fleet, ledger = self._fleet, self._running.ledger
        alive, queue_len = fleet.width > 0, len(self._queue)
        used = utilisation(fleet.books if alive else ())
        return Snapshot(
            in_flight=len(ledger),
            orphans=ledger.orphans,
            sequences=ledger.sequences,
            kv_tokens=ledger.kv_tokens,
            over_sequences=ledger.over_sequences,
            over_kv_tokens=ledger.over_kv_tokens,
            sequences_max=sum(book.slots for book in fleet) if alive else 0,
            kv_tokens_max=sum(book.kv_tokens_max for book in fleet) if alive else 0,
            timed=sum(book.timed_load().running for book in fleet),
            timed_max=sum(book.timed_load().most for book in fleet) if alive else 0,
            queue_len=queue_len,
            queue_len_max=self._queue_len_max(),
            queued_s=self._queue.cost_s,
            backlog_s=self._queue.cost_s / (self._drain_rate.value * max(fleet.width, 1)),
            utilisation=used,
            engines=fleet.width,
            engines_stale=sum(1 for _ in fleet.meters.stale()),
            foreign=sum(book.others.foreign for book in fleet),
            foreign_total=fleet.foreign_total,
            gone=sum(book.others.gone for book in fleet),
            gone_total=fleet.gone_total,
            share=fleet.share,
            engines_down=len(fleet.down()),
            prefill_left_s=min(book.prefill_left_s for book in fleet),
            step_s=fleet.reference.tpot_s(joining=0, prefill=True),
            step_gain=fleet.reference.model.gain,
            tau_s=self._prices.tau_s,
            drain_rate=self._drain_rate.value,
            draining=self._draining,
        )

    def readings(self, now_s: float) -> Iterator[tuple[str, EngineReading | None, float]]:
        """Each engine that is followed, its last reading, and the seconds since."""
        self._fleet.meters.advance(max(now_s, self._now_s))
        return self._fleet.meters.readings()

    def price(self, work: Work) -> Cost:
        """What `work` would ask of an engine, at its limits and its pace of now; changes nothing."""
        return self._prices.of(work, self._fleet.reference)

    def dump_books(self, now_s: float) -> list[dict[str, object]]:
        """What runs, as plain records for a state file: `id`, `sequences`, `kv_tokens`, `expires_in_s`."""
        return self._running.dump(now_s)

    def restore_books(self, records: Iterable[Mapping[str, object]], now_s: float) -> int:
        """Book what an earlier process left running; the number of records that were of use."""
        return self._running.restore(records, self._advance(now_s))

    def dump_pace(self) -> dict[str, object]:
        """What was learned of the engines, for a state file."""
        return {**self._prices.dump(), "engines": self._fleet.dump()}

    def restore_pace(self, record: Mapping[str, object]) -> None:
        """Take over what an earlier process learned; ValueError where it is damaged, an empty record says nothing."""
        self._prices.restore(record)
        if "engines" in record:
            self._fleet.restore(as_record(record["engines"]))

    def _take_over(self, work: Work, now_s: float) -> float:
        """Let `work` take the place of an earlier try of it that waits; since when it counts as waiting."""
        before = self._retries.before(work.attempt, now_s)
        if before.work_id:
            superseded = self._queue.withdraw(before.work_id)
            assert superseded is not None, f"{before.work_id} is known to wait, but does not"
            self._turn_away(superseded.work, supersede(superseded, now_s=now_s), now_s)
        return now_s - before.waited_s

    def _load(self, work: Work, cost: Cost, *, arriving: bool, first_s: float = 0.0) -> Load:
        queue, now_s = self._queue, self._now_s
        ahead, makes_room, breach = _NOBODY, False, None
        if arriving and work.contract is not None:
            breach = self._contracts.breach(work, cost.tokens, now_s)
        queue_len_max = self._queue_len_max()
        if arriving and len(queue):
            ahead = queue.ahead(work, cost_s=cost.bottleneck_s, first_s=first_s, now_s=now_s)
            # without an engine nobody is refused for a newcomer's sake: waiting is all there is to have
            full = len(queue) >= queue_len_max and self._fleet.width > 0
            makes_room = full and queue.overflow(work, cost_s=cost.bottleneck_s, first_s=first_s) is not None
        return Load(
            cost=cost,
            engines=self._fleet.up(),
            in_flight=len(self._running),
            queue_len=len(queue),
            queue_len_max=queue_len_max,
            queued_s=queue.cost_s,
            ahead_len=ahead.requests,
            ahead_s=ahead.cost_s,
            makes_room=makes_room,
            drain_rate=self._drain_rate.value,
            width=self._fleet.width,
            draining=self._draining,
            signals=self._guards.signals(work, cost, now_s),
            breach=breach,
            asked_delay_s=self._asked_delay.left_s(now_s),
        )

    def _queue_len_max(self) -> int:
        """Requests that may wait; a pool without any engine keeps the queue of one."""
        engines = max(self._fleet.width, 1)
        stated = self._limits.queue_len
        return engines * (self._queue_len.per_engine(engines, self._now_s) if stated is None else stated)

    def _due_s(self) -> float | None:
        """The next moment at which time alone changes something, prompts apart."""
        moments = [self._running.ledger.next_expiry_s()]
        if len(self._queue):
            moments += (
                self._queue.next_expiry_s(),
                self._drain_rate.closes_at_s,
                self._fleet.next_change_s(),
            )
        return min((moment for moment in moments if moment is not None), default=None)

    def _advance(self, now_s: float) -> float:
        """Bring in everything that has fallen due; the time, which never goes back."""
        due_s = self._due_s()
        now_s = max(now_s, self._now_s)
        self._now_s = now_s
        self._fleet.advance(now_s)
        if len(self._fleet.meters):
            self._guards.memory_free_mib = self._fleet.memory_free_mib
        if self._prices.watch_is_due(now_s):
            self._prices.watch(self._fleet.estimates(), now_s)
        if due_s is not None and now_s >= due_s:
            self._running.expire(now_s)
            self._drain_rate.roll(engines=self._fleet.width, now_s=now_s)
            for waiting in self._queue.expire(now_s):
                self._conclude(waiting, now_s)
            self._drain_rate.watch(waiting=len(self._queue) > 0, now_s=now_s)
        if len(self._queue) and now_s >= self._served_s + _SERVE_EVERY_S:
            self._serve(now_s)
        return now_s

    def _set_alive(self, count: int, now_s: float) -> None:
        self._fleet.set_alive(count, now_s)
        self._serve(now_s)

    def _serve(self, now_s: float) -> None:
        """Give every queued request its verdict whose turn has come, until one has to wait."""
        self._served_s = now_s
        while (
            len(self._queue) and self._queue.pop_ready(lambda waiting: self._judge(waiting, now_s), now_s) is not None
        ):
            pass
        self._drain_rate.watch(waiting=len(self._queue) > 0, now_s=now_s)

    def _enqueue(self, work: Work, decision: Enqueue, load: Load, first_s: float) -> None:
        now_s, cost_s = self._now_s, load.cost.bottleneck_s
        self._note_shortage(decision.reason, now_s)
        if load.makes_room:
            victim = self._queue.overflow(work, cost_s=cost_s, first_s=first_s)
            assert victim is not None, f"nobody makes room for {work.id}"
            self._queue.withdraw(victim.work.id)
            self._turn_away(victim.work, evict(victim, load, now_s=now_s), now_s)
        self._queue.push(
            Waiting(work=work, since_s=now_s, first_s=first_s, expires_at_s=decision.expires_at_s, cost_s=cost_s)
        )
        self._retries.waits(work, first_s)
        self._drain_rate.watch(waiting=True, now_s=now_s)

    def _turn_away(self, work: Work, verdict: Reject, now_s: float) -> None:
        """Refuse one that has left the queue."""
        self._verdicts[verdict.id] = verdict
        self._retries.done(verdict.id)
        if verdict.reason.rule is not Rule.SUPERSEDED:
            self._retries.ended(work.attempt, now_s)
        self._contracts.turned_away(verdict.id, now_s)

    def _judge(self, waiting: Waiting, now_s: float) -> Verdict | None:
        """The verdict on a queued request, with all that follows from it but its leaving the queue."""
        cost = self.price(waiting.work)
        load = self._load(waiting.work, cost, arriving=False)
        verdict = reconsider(waiting, load, self._limits, now_s=now_s, gates=self._gates)
        if isinstance(verdict, Reason):
            self._note_shortage(verdict, now_s)
            return None
        if isinstance(verdict, Reject):
            self._turn_away(waiting.work, verdict, now_s)
            return verdict
        self._verdicts[verdict.id] = verdict
        self._retries.done(verdict.id)
        self._book(waiting.work, verdict, cost, now_s)
        return verdict

    def _note_shortage(self, reason: Reason, now_s: float) -> None:
        """Tell the books where it is KV tokens that somebody waits for."""
        if reason.rule is Rule.KV_TOKENS:
            for book in self._fleet:
                book.kv_short(now_s)

    def _conclude(self, waiting: Waiting, now_s: float) -> None:
        """The verdict on a request that has left the queue for good."""
        verdict = self._judge(waiting, now_s)
        assert isinstance(verdict, Reject), f"{waiting.work.id} left the queue without a refusal"

    def _book(self, work: Work, admit: Admit, cost: Cost, now_s: float) -> None:
        self._running.begin(work, admit, cost, now_s)
        self._queue.charge(work, cost.bottleneck_s, now_s)
        self._queue_len.admitted(now_s)
        self._guards.watch(in_flight=len(self._running), now_s=now_s)
        self._drain_rate.admitted(cost.bottleneck_s)

    def _learn(self, flight: Flight, outcome: Outcome, now_s: float) -> None:
        """Take in the truth about a request of ours."""
        if flight.cost.service_s is not None:
            flight.learn_timed(outcome, now_s)
            return
        tokens, work = outcome.completion_tokens, flight.work
        if outcome.ending is not Ending.COMPLETE or not tokens:
            return
        self._prices.learn_length(work, tokens, now_s)
        true_s = self._prices.true(work, outcome, tokens, self._fleet.reference).bottleneck_s
        self._queue.correct(work.lane, work.weight, true_s - flight.cost.bottleneck_s)
        if flight.went_elsewhere(outcome):
            return  # Envoy sent it to another engine: its times say nothing about this one
        row = flight.known_row
        if row is not None and outcome.e2e_s is not None:
            flight.book.learn(row, tokens=tokens, ttft_s=outcome.ttft_s, e2e_s=outcome.e2e_s, now_s=now_s)
