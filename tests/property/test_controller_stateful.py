"""Whatever happens to a controller, its books balance and everyone who waits gets exactly one answer."""

import json
from collections import Counter
from math import inf, isfinite, nan
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from tidegate.admission.contract import Contract
from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Decision, Enqueue, Reject, Rule, Verdict
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.limits import GATES_DEFAULT, GateName, Limits, Mode
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.queues.orders import Order
from tidegate.admission.reading import EngineReading
from tidegate.admission.snapshot import Snapshot
from tidegate.admission.work import Work

NAMES = ("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
NO_FLOATS = [nan, inf, -inf, 1e300, -1e300, -1.0, 0.0, 5e-324]
HUGE = 10**400  # callers write integers that no float holds
TENANTS = st.sampled_from(["", "a", "b", "c"])
HOLDS_S = st.sampled_from([0.0, 0.15, 2.0, 9.0, 60.0])
LIMITS = st.builds(
    Limits,
    slots=st.none() | st.sampled_from([1, 2, 4]),
    kv_tokens=st.none() | st.sampled_from([1, 500, 2000]),
    batched_tokens=st.sampled_from([1, 64, 2048, 10_000_000]),
    queue_len=st.none() | st.integers(0, 3),
    mode=st.sampled_from(Mode),
    order=st.sampled_from(Order),
    alpha=st.sampled_from([0.0, 1.0, 3.0, 1000.0]),
    fair=st.booleans(),
    gates=st.just(GATES_DEFAULT) | st.lists(st.sampled_from(GateName), unique=True).map(tuple),
    concurrency=st.none() | st.integers(1, 6),
    p99_target_s=st.sampled_from([0.001, 2.0]),
    early_reject=st.booleans(),
)
WORK = st.fixed_dictionaries(
    {
        "tenant": TENANTS,
        "prompt_tokens": st.integers(0, 1500) | st.sampled_from([-1, 50_000, 10**9, HUGE]),
        "completion_tokens_max": st.none() | st.integers(0, 50) | st.sampled_from([-1, HUGE]),
        "log_mean": st.floats(0.0, 8.0) | st.sampled_from(NO_FLOATS),
        "log_sigma": st.floats(0.0, 2.0) | st.sampled_from(NO_FLOATS),
        "sequences": st.integers(1, 4) | st.sampled_from([0, HUGE]),
        "stream": st.booleans(),
        "ttft_budget_s": st.sampled_from([0.001, 0.3, 2.0, 60.0, 600.0]),
        "tpot_target_s": st.sampled_from([0.0, 0.001, 0.02, 0.15, 60.0]),
        "client_timeout_s": st.sampled_from([0.001, 0.3, 10.0, 60.0, 3600.0]),
        "hold_s_max": HOLDS_S,
        "weight": st.integers(0, 4),
        "contract": st.none() | st.builds(Contract, requests=st.none() | st.just(2), tokens_per_minute=st.just(5000)),
        "refusable": st.integers(0, 4).map(bool),
    }
)
READING = st.builds(
    EngineReading,
    running=st.none() | st.integers(0, 8) | st.sampled_from([-1, 10**9]),
    waiting=st.none() | st.integers(0, 8) | st.sampled_from([-1, 10**9]),
    kv_usage=st.none() | st.floats(0.0, 1.0) | st.sampled_from(NO_FLOATS),
    steps_total=st.none() | st.floats(0.0, 1000.0) | st.sampled_from(NO_FLOATS),
    tokens_total=st.none() | st.floats(0.0, 1e5) | st.sampled_from(NO_FLOATS),
)
COUNTS = st.fixed_dictionaries(
    {
        "running": st.none() | st.integers(0, 8),
        "waiting": st.none() | st.integers(0, 4),
        "kv_usage": st.none() | st.floats(0.0, 1.0),
    }
)
SECONDS = st.none() | st.floats(0.0, 100.0) | st.sampled_from(NO_FLOATS)
ENGINE = st.sampled_from([*NAMES, "10.9.9.9:80", ""])
OUTCOME = st.fixed_dictionaries(
    {
        "ending": st.sampled_from([Ending.COMPLETE, *Ending]),
        "stream": st.booleans(),
        "prompt_tokens": st.none() | st.integers(0, 2000) | st.sampled_from([-1, 10**8]),
        "completion_tokens": st.none() | st.integers(0, 500) | st.sampled_from([-1, 10**8]),
        "ttft_s": SECONDS,
        "e2e_s": SECONDS,
        "engine": ENGINE,
        "details": st.sampled_from(["via_upstream", "upstream_reset_before_response_started{connection_failure}"]),
        "response_bytes": st.sampled_from([0, 100]),
        "retry_after_s": st.none() | st.sampled_from([0.0, 7.0, 1e9]),
        "replica": st.sampled_from(["", "other"]),
    }
)
STEPS_S = st.sampled_from([0.0, 0.001, 0.03, 0.1, 0.4, 1.0, 5.0])
PICK = st.integers(0, 10**6)
WAKES_MAX = 20_000  # 60 s, the longest hold, in looks of 5 ms, the shortest; and every step of ramp and health


class ControllerMachine(RuleBasedStateMachine):
    """Plays Envoy, its access log and the engines' counters to one controller, and keeps books of its own."""

    @initialize(
        limits=LIMITS,
        engines=st.integers(0, 3),
        steered=st.booleans(),
        ramp=st.booleans(),
        now_s=st.sampled_from([0.0, 12_345.678, 4e6]),
    )
    def start(self, limits: Limits, engines: int, steered: bool, ramp: bool, now_s: float) -> None:
        self.now_s = now_s
        self.names: tuple[str, ...] = NAMES if steered else ()
        self.controller = Controller(limits, engines=engines, names=self.names, now_s=now_s, ramp=ramp)
        self.limits = limits
        self.waiting: dict[str, Work] = {}
        self.expires_at_s: dict[str, float] = {}
        self.running: dict[str, Admit] = {}
        self.moved: set[str] = set()  # ids that ran when the choice of engine passed on
        self.orphans: dict[str, float] = {}  # id -> when it is given up
        self.answered: set[str] = set()
        self.released: list[str] = []
        self.settled: set[tuple[str, str]] = set()
        self.submitted = self.restored = 0
        self.draining = False
        self.counted: dict[str, tuple[int, int]] = {}
        self.decided: list[Admit] = []  # in the latest call, first to last

    # what Envoy does

    @rule(facts=WORK, step_s=STEPS_S)
    def submit(self, facts: dict[str, Any], step_s: float) -> None:
        self.tick(step_s)
        work = Work(id=f"w{self.submitted}", **facts)
        self.submitted += 1
        before = self.state()
        foretold = self.controller.preview(work, self.now_s)
        assert _booked(self.state()) == _booked(before)
        decision = self.controller.submit(work, self.now_s)
        assert decision.id == work.id
        if isinstance(decision, Reject):
            assert decision == foretold
            assert _booked(self.state()) == _booked(before)
        else:
            assert foretold is None
        self.take()
        if isinstance(decision, Enqueue):
            self.enqueued(work, decision, before)
        else:
            self.answer(work, decision)
        self.admitted_within_limits()

    @rule(facts=WORK, step_s=STEPS_S)
    def submit_before_the_look_that_is_due(self, facts: dict[str, Any], step_s: float) -> None:
        """What time has brought comes out of this call, too."""
        before = self.state()
        self.now_s += step_s
        work = Work(id=f"w{self.submitted}", **facts)
        self.submitted += 1
        decision = self.controller.submit(work, self.now_s)
        self.forget_orphans()
        self.take()
        if isinstance(decision, Enqueue):
            self.enqueued(work, decision, before)
        else:
            self.answer(work, decision)

    def enqueued(self, work: Work, decision: Enqueue, before: Snapshot) -> None:
        assert work.refusable
        assert not self.draining
        assert self.now_s < decision.expires_at_s <= self.now_s + work.hold_s_max
        self.waiting[work.id] = work
        self.expires_at_s[work.id] = decision.expires_at_s
        assert len(self.waiting) <= max(self.state().queue_len_max, before.queue_len)

    @rule(tenants=st.lists(TENANTS, min_size=2, max_size=12), prompt_tokens=st.integers(1, 400))
    def burst(self, tenants: list[str], prompt_tokens: int) -> None:
        """Ordinary requests, more than the engines take at once."""
        ordinary = {"prompt_tokens": prompt_tokens, "log_mean": 3.0, "log_sigma": 0.6}
        for tenant in tenants:
            self.submit({"tenant": tenant, "ttft_budget_s": 60.0, "hold_s_max": 9.0, **ordinary}, 0.0)

    @precondition(lambda self: self.submitted)
    @rule(facts=WORK, more_tokens=st.integers(0, 3000))
    def preview_holds_for_larger_prompts(self, facts: dict[str, Any], more_tokens: int) -> None:
        self.tick(0.0)
        work = Work(id="larger", **facts)
        larger = replace(work, prompt_tokens=work.prompt_tokens + more_tokens)
        if self.controller.preview(work, self.now_s) is not None:
            assert self.controller.preview(larger, self.now_s) is not None

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK, step_s=STEPS_S)
    def client_leaves_the_queue(self, pick: int, step_s: float) -> None:
        self.release(sorted(self.waiting)[pick % len(self.waiting)], step_s)

    @precondition(lambda self: self.running)
    @rule(pick=PICK, step_s=STEPS_S)
    def stream_ends(self, pick: int, step_s: float) -> None:
        self.release(sorted(self.running)[pick % len(self.running)], step_s)

    @precondition(lambda self: self.released)
    @rule(pick=PICK)
    def stream_ends_again(self, pick: int) -> None:
        assert not self.controller.release(self.released[pick % len(self.released)], self.now_s)
        self.take()

    @rule(step_s=STEPS_S)
    def tick(self, step_s: float) -> None:
        self.tick_at(self.now_s + step_s)

    def tick_at(self, now_s: float) -> None:
        self.now_s = now_s
        self.controller.tick(self.now_s)
        self.forget_orphans()
        self.take()

    @rule(back_s=st.sampled_from([1e-9, 0.5, 1e6]))
    def time_never_goes_back(self, back_s: float) -> None:
        self.tick(0.0)
        before, wake_s = self.state(), self.controller.next_wake_s()
        self.controller.tick(self.now_s - back_s)
        assert _booked(self.state()) == _booked(before)
        assert self.controller.next_wake_s() == wake_s
        assert self.controller.take_verdicts() == []

    # what becomes known

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK, facts=OUTCOME, step_s=STEPS_S)
    def log_entry(self, pick: int, facts: dict[str, Any], step_s: float) -> None:
        self.tick(step_s)
        ids = [f"w{number}" for number in range(self.submitted)] + sorted(self.orphans)
        self.settle(Outcome(id=ids[pick % len(ids)], **facts))

    def settle(self, entry: Outcome) -> None:
        assert self.controller.settle(entry, self.now_s) == ((entry.replica, entry.id) not in self.settled)
        assert not self.controller.settle(entry, self.now_s)
        if (entry.replica, entry.id) not in self.settled:
            self.orphans.pop(entry.id, None)
        self.settled.add((entry.replica, entry.id))
        self.take()

    @rule(engine=ENGINE, reading=READING, step_s=STEPS_S)
    def read(self, engine: str, reading: EngineReading, step_s: float) -> None:
        self.tick(step_s)
        self.controller.read(engine, reading, self.now_s)
        self.take()

    @rule(engine=ENGINE, steps=st.integers(0, 60), tokens=st.integers(0, 5000), facts=COUNTS, step_s=STEPS_S)
    def count(self, engine: str, steps: int, tokens: int, facts: dict[str, Any], step_s: float) -> None:
        """Counters that go on from where they were."""
        before_steps, before_tokens = self.counted.get(engine, (0, 0))
        self.counted[engine] = total = (before_steps + steps, before_tokens + tokens)
        self.read(engine, EngineReading(steps_total=total[0], tokens_total=total[1], **facts), step_s)

    @precondition(lambda self: self.running)
    @rule(pick=PICK, tokens=st.integers(1, 80), ttft_s=st.floats(0.01, 3.0), rest_s=st.floats(0.01, 10.0))
    def answer_ends(self, pick: int, tokens: int, ttft_s: float, rest_s: float) -> None:
        """As most do: with times that can be true, the log entry a moment after the stream."""
        work_id = sorted(self.running)[pick % len(self.running)]
        self.release(work_id, 0.4)
        e2e_s = ttft_s + rest_s
        self.settle(
            Outcome(id=work_id, stream=True, completion_tokens=tokens, engine=NAMES[0], ttft_s=ttft_s, e2e_s=e2e_s)
        )

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK, step_s=STEPS_S)
    def first_token(self, pick: int, step_s: float) -> None:
        self.tick(step_s)
        self.controller.first_token(f"w{pick % self.submitted}", self.now_s)
        self.take()

    @rule(
        limits=LIMITS,
        engines=st.integers(0, 3),
        names=st.sampled_from([(), NAMES, NAMES[::-1], NAMES[1:], ("10.0.0.9:80",)]),
    )
    def reconfigure(self, limits: Limits, engines: int, names: tuple[str, ...]) -> None:
        """Other limits, other engines, and the choice among them passes from Envoy to the controller or back."""
        if bool(names) != bool(self.names):  # nobody can say any more which engine runs what
            self.moved = set(self.running)
        self.limits, self.names = limits, names
        self.controller.reconfigure(limits, engines, self.now_s, names=names)
        self.take()

    @rule(count=st.sampled_from([-1, 0, 1, 2, 3, 3]))
    def engines_come_and_go(self, count: int) -> None:
        self.controller.set_engines_alive(count, self.now_s)
        assert self.state().engines == max(count, 0)
        self.take()

    @rule(ahead=st.booleans(), sequences=st.integers(1, 3), kv_tokens=st.integers(1, 500), in_s=st.floats(0.01, 60.0))
    def adopt(self, ahead: bool, sequences: int, kv_tokens: int, in_s: float) -> None:
        """A booking of an earlier process, which may have given its request the id that the next one here has."""
        self.tick(0.0)
        work_id = f"w{self.submitted}" if ahead else f"o{self.restored}"
        self.restored += 1
        record = {"id": work_id, "sequences": sequences, "kv_tokens": kv_tokens, "expires_in_s": in_s}
        new = int(work_id not in self.orphans)
        assert self.controller.restore_books([record], self.now_s) == new
        if new:
            self.orphans[work_id] = self.now_s + max(in_s, 1.0)

    @rule()
    def restart(self) -> None:
        """Another process takes up books and knowledge, as a state file keeps them; this one goes on."""
        books = json.loads(json.dumps(self.controller.dump_books(self.now_s), allow_nan=False))
        pace = json.loads(json.dumps(self.controller.dump_pace(), allow_nan=False))
        successor = Controller(self.limits, engines=1, names=self.names, now_s=0.0)
        successor.restore_pace(pace)
        assert successor.dump_pace() == pace
        assert successor.restore_books(books, 0.0) == len(books)
        assert successor.snapshot(0.0).sequences == self.state().sequences
        successor.tick(4000.0)
        assert successor.snapshot(4000.0).sequences == 0

    @precondition(lambda self: self.submitted > 50)
    @rule()
    def drain(self) -> None:
        self.draining = True
        self.controller.drain(self.now_s)
        self.take()
        assert not self.waiting

    @precondition(lambda self: self.waiting)
    @rule(letting_go=st.booleans())
    def all_who_wait_are_answered_in_time(self, letting_go: bool) -> None:
        """By waking as told, whether or not what runs ends: each has its answer by the time it was promised."""
        while letting_go and self.running:
            self.release(min(self.running), 0.0)
        last_s = max((self.expires_at_s[work_id] for work_id in self.waiting), default=self.now_s)
        for _ in range(WAKES_MAX):
            if not self.waiting:
                break
            wake_s = self.controller.next_wake_s()
            assert wake_s is not None
            self.tick_at(wake_s)
        assert not self.waiting
        assert self.now_s <= last_s + 1e-6

    # what must hold

    @invariant()
    def books_balance(self) -> None:
        state = self.state()
        assert (state.in_flight, state.queue_len) == (len(self.running), len(self.waiting))
        assert state.orphans == len(self.orphans)
        assert state.sequences + state.sequences_free == state.sequences_max
        assert state.kv_tokens + state.kv_tokens_free == state.kv_tokens_max
        assert 0 <= state.over_sequences <= state.sequences
        booked = self.controller.dump_books(self.now_s)
        assert Counter(record["id"] for record in booked) == Counter([*self.running, *self.orphans])
        assert state.sequences == sum(_whole(record["sequences"]) for record in booked)
        assert state.kv_tokens == sum(_whole(record["kv_tokens"]) for record in booked)
        assert state.kv_tokens >= sum(admit.kv_tokens for admit in self.running.values())
        if not self.waiting:
            assert state.queued_s == 0.0

    @invariant()
    def engine_books_hold_what_runs(self) -> None:
        books, state = self.all_books(), self.state()
        assert sum(book.sequences for book in books) == state.sequences
        for work_id, admit in self.running.items():
            if work_id not in self.moved:
                names = [book.name for book in books if work_id in book]
                assert names == [admit.engine] or (not admit.engine and len(names) == 1)
        if not self.running:
            assert not any(book.prefilling for book in books)
        if not self.running and not self.orphans:
            assert [(book.sequences, book.kv_tokens) for book in books] == [(0, 0.0)] * len(books)

    @invariant()
    def figures_are_figures(self) -> None:
        state = self.state()
        assert 0.0 <= state.share <= 1.0
        assert 1e-4 <= state.tau_s <= 10.0
        assert 0.2 <= state.drain_rate <= 3.0
        assert 0.0 <= state.queued_s < inf
        assert not (self.controller.at_ease and (self.waiting or self.draining or not state.engines))
        for book in self.all_books():
            assert 0.0 <= book.prefill_left_s < inf
            assert -1e-6 <= book.kv_tokens < inf
            assert isfinite(book.welcome)
            assert 0.0 < book.tpot_s(joining=1, prefill=True) < inf
            assert 0.0 < book.ttft_s(100.0) < inf
            assert isfinite(book.prefill_allowance(0.15)[1])
            assert book.slots >= 1
            assert book.kv_tokens_max >= 1

    @invariant()
    def nobody_waits_for_an_idle_engine(self) -> None:
        """But for the guards that count the whole pool; after a look, for what time alone brings."""
        self.tick(0.0)
        if self.waiting and self.state().engines > 0 and set(self.limits.gates) <= set(GATES_DEFAULT):
            assert not [book.name for book in self.books() if book.share > 0.0 and book.sequences == 0]

    @invariant()
    def nobody_waits_beyond_the_next_wake(self) -> None:
        wake_s = self.controller.next_wake_s()
        assert (wake_s is not None) == bool(self.waiting)
        if wake_s is not None:
            assert self.now_s < wake_s <= self.now_s + 0.1 + 1e-6
            assert wake_s <= min(self.expires_at_s[work_id] for work_id in self.waiting)

    def teardown(self) -> None:
        """In the end everything is given back."""
        if not hasattr(self, "controller"):
            return
        for work_id in [*self.waiting, *self.running]:
            self.release(work_id, 0.0)
        for work_id in list(self.running):  # let in while the others were given back
            self.release(work_id, 0.0)
        self.tick(100.0)
        assert self.controller.next_wake_s() is None
        state = self.state()
        assert (state.in_flight, state.orphans, state.queue_len, state.queued_s) == (0, 0, 0, 0.0)
        assert (state.sequences, state.kv_tokens, state.over_sequences, state.over_kv_tokens) == (0, 0, 0, 0)
        assert [(book.sequences, book.kv_tokens) for book in self.all_books()] == [(0, 0.0)] * len(self.all_books())

    # the machine's own books

    def state(self) -> Snapshot:
        return self.controller.snapshot(self.now_s)

    def books(self) -> list[EngineBook]:
        return self.controller._fleet.books

    def all_books(self) -> list[EngineBook]:
        """Those of engines that have left, and still run something, included."""
        return [*self.books(), *self.controller._fleet._leaving]

    def release(self, work_id: str, step_s: float) -> None:
        self.tick(step_s)  # so that what time has done is known before
        held = work_id in self.waiting or work_id in self.running
        self.waiting.pop(work_id, None)
        self.running.pop(work_id, None)
        assert self.controller.release(work_id, self.now_s) == held
        self.released.append(work_id)
        self.take()

    def forget_orphans(self) -> None:
        self.orphans = {work_id: at_s for work_id, at_s in self.orphans.items() if at_s > self.now_s}

    def take(self) -> None:
        """Verdicts on who waited, whatever call they came out of."""
        self.decided = []
        for verdict in self.controller.take_verdicts():
            work = self.waiting.pop(verdict.id)
            assert 0.0 <= verdict.waited_s < inf
            self.answer(work, verdict)
        self.admitted_within_limits()

    def answer(self, work: Work, decision: Decision | Verdict) -> None:
        assert work.id not in self.answered, "a second final verdict"
        self.answered.add(work.id)
        reason = decision.reason
        assert isfinite(reason.measured)
        assert isfinite(reason.threshold)
        if isinstance(decision, Admit):
            assert reason.rule in {Rule.CAPACITY, Rule.NOT_REFUSABLE}
            assert work.refusable <= (reason.rule is Rule.CAPACITY)
            assert decision.engine in (self.names or ("",)) or reason.rule is Rule.NOT_REFUSABLE
            self.running[work.id] = decision
            self.orphans.pop(work.id, None)
            self.decided.append(decision)
        elif isinstance(decision, Reject):
            assert work.refusable
            assert (decision.retry_after_s is None) == (reason.rule is Rule.REQUEST_TOO_LARGE)
            assert decision.retry_after_s is None or 1.0 <= decision.retry_after_s <= 30.0

    def admitted_within_limits(self) -> None:
        """Only what cannot be refused, or is alone in its engine, is ever admitted over the slots."""
        if GateName.SLOTS not in self.limits.gates:
            return
        self.state()  # shares as of now
        over = [admit.id for admit in self.decided if admit.reason.rule is Rule.NOT_REFUSABLE]
        for book in self.books():
            inside = [admit.id for admit in self.decided if admit.id in book and admit.id not in over]
            if not inside:
                continue
            rows = [row for work_id in over if (row := book.row(work_id)) is not None]
            sequences = book.sequences - sum(row.cost.sequences for row in rows)
            alone = book.row(inside[0])
            assert sequences <= book.slots or (alone is not None and alone.cost.sequences == sequences)


def _booked(state: Snapshot) -> tuple[float, ...]:
    """What a look must not change; what the engines are doing is reckoned anew at each."""
    held = (
        state.in_flight,
        state.orphans,
        state.sequences,
        state.kv_tokens,
        state.over_sequences,
        state.over_kv_tokens,
    )
    return (*held, state.queue_len, state.queue_len_max, state.queued_s, state.engines, state.tau_s, state.drain_rate)


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_the_time_after_the_last_one_has_expired_is_no_waiting() -> None:
    """Whatever call finds that nobody waits any more: an idle minute counts as no minute of waiting."""
    controller = Controller(Limits(slots=1, mode=Mode.BACKPRESSURE_FIRST), now_s=0.0, ramp=False)
    for work_id, hold_s, now_s in [("runs", 9.0, 0.0), ("expires", 0.5, 0.0)]:
        controller.submit(Work(id=work_id, hold_s_max=hold_s), now_s)
    assert controller.preview(Work(id="asks", hold_s_max=0.0), 0.5) is not None
    assert [verdict.id for verdict in controller.take_verdicts()] == ["expires"]
    controller.submit(Work(id="waits", hold_s_max=9.0), 60.0)
    controller.tick(60.1)
    assert controller.snapshot(60.1).drain_rate == 1.0
