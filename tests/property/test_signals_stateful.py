"""A pool whose engines come, go, speak, fall silent and lie: whatever they do, it keeps its books and can be left."""

from math import nan
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.admission.builders import patient, pool
from tidegate.admission.decision import Admit
from tidegate.admission.limits import Stale
from tidegate.admission.reading import EngineReading

SLOTS = 6
ENGINES = st.lists(st.sampled_from("abcd"), unique=True, max_size=4).map(tuple)
READINGS = st.builds(
    EngineReading,
    running=st.none() | st.integers(-5, 50),
    waiting=st.none() | st.integers(-5, 50),
    slots=st.none() | st.integers(-1, 1_000_000),
    kv_usage=st.none() | st.floats(-1.0, 2.0) | st.just(nan),
    kv_tokens_max=st.none() | st.integers(-1, 10**12),
    steps_total=st.none() | st.floats(allow_nan=True, allow_infinity=True),
    tokens_total=st.none() | st.floats(allow_nan=True, allow_infinity=True),
    memory_free_mib=st.none() | st.floats(allow_nan=True, allow_infinity=True),
    ready=st.booleans(),
)


class SignalsMachine(RuleBasedStateMachine):
    """One pool; `engines` are those that it was told of last."""

    @initialize(
        stale=st.sampled_from(Stale), steered=st.booleans(), slots=st.sampled_from([SLOTS, None]), engines=ENGINES
    )
    def begin(self, stale: Stale, steered: bool, slots: int | None, engines: tuple[str, ...]) -> None:
        self.now_s, self.steered, self.number = 0.0, steered, 0
        self.controller = pool(slots=slots, stale=stale)
        self.running: set[str] = set()
        self.waiting: set[str] = set()
        self.engines: tuple[str, ...] = ()
        self.follow(engines)

    @rule(engines=ENGINES)
    def follow(self, engines: tuple[str, ...]) -> None:
        self.engines = engines
        self.controller.follow(engines, self.now_s, steered=self.steered, metered=True)
        self.listen()

    @rule(data=st.data(), reading=READINGS)
    def read(self, data: Any, reading: EngineReading) -> None:
        if self.engines:
            self.controller.read(data.draw(st.sampled_from(self.engines)), reading, self.now_s)
            self.listen()

    @rule(data=st.data(), began_anew=st.booleans())
    def miss(self, data: Any, began_anew: bool) -> None:
        if self.engines:
            engine = data.draw(st.sampled_from(self.engines))
            self.controller.missed(engine, self.now_s, began_anew=began_anew)
            self.listen()

    @rule(hold_s=st.sampled_from([0.0, 3600.0]), completion=st.integers(1, 500))
    def arrive(self, hold_s: float, completion: int) -> None:
        self.number += 1
        work = patient(str(self.number), hold_s_max=hold_s, completion_tokens_max=completion)
        decision = self.controller.submit(work, self.now_s)
        if isinstance(decision, Admit):
            self.running.add(work.id)
            assert not self.steered or decision.engine in self.engines
        elif hold_s:
            self.waiting.add(work.id)
        self.listen()

    @rule(data=st.data())
    def end(self, data: Any) -> None:
        if self.running:
            work_id = data.draw(st.sampled_from(sorted(self.running)))
            self.running.discard(work_id)
            assert self.controller.release(work_id, self.now_s)
            self.listen()

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 5.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.controller.tick(self.now_s)
        self.listen()

    @invariant()
    def books_are_kept(self) -> None:
        """What runs is booked, as many engines are there as were told of, and no figure is absurd."""
        state = self.controller.snapshot(self.now_s)
        assert state.in_flight == len(self.running)
        assert state.engines == len(self.engines)
        assert 0 <= state.engines_stale <= len(self.engines)
        assert state.foreign >= 0 <= state.gone <= state.sequences
        assert (state.sequences_max >= 1) == bool(self.engines)
        assert 0.0 <= state.utilisation.highest < 1e12

    @rule()
    def recover(self) -> None:
        """Once all speak well again nobody waits in vain: every request is served when others leave."""
        if not self.engines:
            self.follow(("a",))
        for _ in range(4):
            self.now_s += 1.0
            for engine in self.engines:
                self.controller.read(engine, EngineReading(running=0, waiting=0, kv_usage=0.0), self.now_s)
            self.listen()
        for _ in range(len(self.waiting) + len(self.running)):
            for work_id in sorted(self.running):
                self.running.discard(work_id)
                self.controller.release(work_id, self.now_s)
                self.listen()
        assert not self.waiting
        assert self.controller.snapshot(self.now_s).in_flight == 0

    def listen(self) -> None:
        for verdict in self.controller.take_verdicts():
            self.waiting.discard(verdict.id)
            if isinstance(verdict, Admit):
                self.running.add(verdict.id)


TestSignals = SignalsMachine.TestCase
TestSignals.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
