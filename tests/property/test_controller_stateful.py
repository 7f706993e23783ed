"""Whatever happens to a controller, its books balance and everyone who waits gets exactly one answer."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Decision, Enqueue, Reject, Rule, Verdict
from tidegate.admission.limits import Limits, Mode
from tidegate.admission.outcome import Outcome
from tidegate.admission.snapshot import Snapshot
from tidegate.admission.work import Work

LIMITS = st.builds(
    Limits,
    slots=st.integers(1, 6),
    kv_tokens=st.integers(1, 2000),
    queue_len=st.integers(0, 5),
    mode=st.sampled_from(Mode),
    slots_stated=st.booleans(),
    kv_tokens_stated=st.booleans(),
)
WORK = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from(["", "a", "b", "c"]),
        "prompt_tokens": st.integers(0, 1500),
        "completion_tokens_max": st.none() | st.integers(0, 50),
        "sequences": st.integers(1, 4),
        "stream": st.booleans(),
        "ttft_budget_s": st.floats(0.1, 60.0),
        "client_timeout_s": st.floats(0.1, 600.0),
        "hold_s_max": st.floats(0.0, 60.0),
        "weight": st.integers(0, 4),
        "refusable": st.integers(0, 4).map(bool),
    }
)
STEPS_S = st.sampled_from([0.0, 0.001, 0.03, 0.1, 0.4, 1.0, 5.0])
PICK = st.integers(0, 10**6)


class ControllerMachine(RuleBasedStateMachine):
    """Plays Envoy to one controller, and keeps books of its own."""

    @initialize(limits=LIMITS, engines=st.integers(0, 3), ramp=st.booleans(), now_s=st.sampled_from([0.0, 12_345.678]))
    def start(self, limits: Limits, engines: int, ramp: bool, now_s: float) -> None:
        self.now_s = now_s
        self.controller = Controller(limits, engines=engines, now_s=now_s, ramp=ramp)
        self.limits = limits
        self.waiting: dict[str, Work] = {}
        self.expires_at_s: dict[str, float] = {}
        self.running: dict[str, Work] = {}
        self.answered: set[str] = set()
        self.released: list[str] = []
        self.submitted = 0
        self.draining = False

    @rule(facts=WORK, step_s=STEPS_S, ticked=st.booleans())
    def submit(self, facts: dict[str, Any], step_s: float, ticked: bool) -> None:
        self.now_s += step_s
        if ticked:
            self.controller.tick(self.now_s)
            self.take()
        work = Work(id=f"w{self.submitted}", **facts)
        self.submitted += 1
        before = self.state()
        foretold = self.controller.preview(work, self.now_s)
        assert self.state() == before
        decision = self.controller.submit(work, self.now_s)
        if foretold is not None:
            assert decision == foretold
        if ticked and isinstance(decision, Reject):
            assert decision == foretold
            assert self.state() == before
        self.take()
        if isinstance(decision, Enqueue):
            assert work.refusable
            assert not self.draining
            assert self.now_s < decision.expires_at_s <= self.now_s + work.hold_s_max
            self.waiting[work.id] = work
            self.expires_at_s[work.id] = decision.expires_at_s
            assert len(self.waiting) <= self.state().queue_len_max
        else:
            self.answer(work, decision)

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
        self.now_s += step_s
        self.controller.tick(self.now_s)
        self.take()

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK, tokens=st.none() | st.integers(0, 500), e2e_s=st.floats(0.0, 100.0), stream=st.booleans())
    def log_entry(self, pick: int, tokens: int | None, e2e_s: float, stream: bool) -> None:
        entry = Outcome(
            id=f"w{pick % self.submitted}", completion_tokens=tokens, e2e_s=e2e_s, ttft_s=e2e_s / 2.0, stream=stream
        )
        self.controller.settle(entry, self.now_s)
        assert not self.controller.settle(entry, self.now_s)
        self.take()

    @rule(limits=LIMITS, engines=st.integers(0, 3))
    def reconfigure(self, limits: Limits, engines: int) -> None:
        self.limits = limits
        self.controller.reconfigure(limits, engines, self.now_s)
        self.take()

    @rule(count=st.integers(0, 3))
    def engines_come_and_go(self, count: int) -> None:
        self.controller.set_engines_alive(count, self.now_s)
        self.take()

    @rule()
    def restart(self) -> None:
        """Another process takes up the books; this one goes on."""
        books = self.controller.dump_books(self.now_s)
        successor = Controller(self.limits, engines=1, now_s=0.0)
        assert successor.restore_books(books, 0.0) == len(books)
        assert successor.snapshot(0.0).sequences == self.state().sequences
        successor.tick(4000.0)
        assert successor.snapshot(4000.0).sequences == 0

    @precondition(lambda self: self.submitted > 15)
    @rule()
    def drain(self) -> None:
        self.draining = True
        self.controller.drain(self.now_s)
        self.take()
        assert not self.waiting

    @invariant()
    def books_balance(self) -> None:
        state = self.state()
        assert (state.in_flight, state.queue_len) == (len(self.running), len(self.waiting))
        assert state.sequences + state.sequences_free == state.sequences_max
        assert state.kv_tokens + state.kv_tokens_free == state.kv_tokens_max
        assert 0 <= state.over_sequences <= state.sequences
        if not self.running:
            assert (state.sequences, state.kv_tokens, state.over_sequences, state.over_kv_tokens) == (0, 0, 0, 0)
        if not self.waiting:
            assert state.queued_s == 0.0

    @invariant()
    def nobody_waits_for_an_idle_pool(self) -> None:
        state = self.state()
        assert not (self.waiting and state.engines > 0 and state.sequences == 0)

    @invariant()
    def nobody_waits_beyond_the_next_wake(self) -> None:
        wake_s = self.controller.next_wake_s()
        assert (wake_s is not None) == bool(self.waiting)
        if wake_s is not None:
            assert wake_s > self.now_s
            assert wake_s <= min(self.expires_at_s[work_id] for work_id in self.waiting)

    def teardown(self) -> None:
        """In the end everyone who waits is answered by time alone, and everything is given back."""
        if not hasattr(self, "controller"):
            return
        for _ in range(2000):
            if (wake_s := self.controller.next_wake_s()) is None:
                break
            self.now_s = wake_s
            self.controller.tick(wake_s)
            self.take()
        assert not self.waiting
        for work_id in sorted(self.running):
            self.release(work_id, 0.0)
        self.books_balance()

    def state(self) -> Snapshot:
        return self.controller.snapshot(self.now_s)

    def release(self, work_id: str, step_s: float) -> None:
        self.now_s += step_s
        self.controller.tick(self.now_s)  # so that what time has done is known before
        self.take()
        held = work_id in self.waiting or work_id in self.running
        self.waiting.pop(work_id, None)
        self.running.pop(work_id, None)
        assert self.controller.release(work_id, self.now_s) == held
        self.released.append(work_id)
        self.take()

    def take(self) -> None:
        for verdict in self.controller.take_verdicts():
            work = self.waiting.pop(verdict.id)
            assert verdict.waited_s >= 0.0
            self.answer(work, verdict)

    def answer(self, work: Work, decision: Decision | Verdict) -> None:
        assert work.id not in self.answered, "a second final verdict"
        self.answered.add(work.id)
        if isinstance(decision, Admit):
            self.running[work.id] = work
            self.admitted_within_limits(work, decision)
        elif isinstance(decision, Reject):
            assert work.refusable
            assert (decision.retry_after_s is None) == (decision.reason.rule is Rule.REQUEST_TOO_LARGE)
            assert decision.retry_after_s is None or 1.0 <= decision.retry_after_s <= 30.0

    def admitted_within_limits(self, work: Work, admit: Admit) -> None:
        """Only what cannot be refused, or is alone, is ever admitted over the limits."""
        state = self.state()
        if admit.reason.rule is Rule.NOT_REFUSABLE:
            assert not work.refusable
            return
        assert state.engines > 0
        if state.in_flight > 1:
            # what could not be refused may have been booked since, in the same call
            assert state.sequences_free + state.over_sequences >= 0
            assert state.kv_tokens_free + state.over_kv_tokens >= 0


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
