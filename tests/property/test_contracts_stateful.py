"""Whatever comes, goes, is tried again and turns out otherwise: contracts hold, and all of them come back."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.admission.builders import outcome, patient, pool
from tidegate.admission.attempt import Attempt
from tidegate.admission.contract import Contract
from tidegate.admission.decision import Admit, Enqueue, Reject, Rule, Verdict
from tidegate.admission.outcome import Ending
from tidegate.admission.work import Work

PLACES, REQUESTS, TOKENS = 3, 20, 4000
CONTRACT = Contract(name="gold", requests=PLACES, requests_per_minute=REQUESTS, tokens_per_minute=TOKENS)
TENANTS = ["acme", "globex"]


class ContractsMachine(RuleBasedStateMachine):
    """Two tenants under one contract and a third without, in a pool of two slots."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = pool(slots=2, queue_len=4)
        self.now_s = 0.0
        self.inside: dict[str, Work] = {}
        self.running: set[str] = set()
        self.ended: list[str] = []
        self.admitted: Counter[str] = Counter()
        self.serial = 0

    @rule(
        tenant=st.sampled_from(TENANTS),
        prompt_tokens=st.integers(1, 900),
        key=st.none() | st.sampled_from("xyz"),
        step_s=st.sampled_from([0.0, 0.1, 2.0, 20.0]),
    )
    def submit(self, tenant: str, prompt_tokens: int, key: str | None, step_s: float) -> None:
        self.tick(step_s)
        attempt = None if key is None else Attempt(same=(tenant, key))
        work = patient(
            f"w{self.serial}", tenant=tenant, prompt_tokens=prompt_tokens, contract=CONTRACT, attempt=attempt,
            hold_s_max=9.0,
        )  # fmt: skip
        self.serial += 1
        decision = self.controller.submit(work, self.now_s)
        if not isinstance(decision, Reject):
            self.inside[work.id] = work
        if isinstance(decision, Admit):
            self.runs(work.id)
        self.take()

    @rule()
    def others_come(self) -> None:
        """Whoever has no contract takes up the pool as well."""
        work = patient(f"o{self.serial}")
        self.serial += 1
        if isinstance(self.controller.submit(work, self.now_s), Admit | Enqueue):
            self.inside[work.id] = work
        self.take()

    @precondition(lambda self: self.inside)
    @rule(pick=st.integers(0, 99))
    def stream_ends(self, pick: int) -> None:
        work_id = sorted(self.inside)[pick % len(self.inside)]
        del self.inside[work_id]
        if work_id in self.running:
            self.running.discard(work_id)
            self.ended.append(work_id)
        self.controller.release(work_id, self.now_s)
        self.take()

    @precondition(lambda self: self.ended)
    @rule(ending=st.sampled_from(Ending), tokens=st.none() | st.integers(0, 9000))
    def truth_comes(self, ending: Ending, tokens: int | None) -> None:
        entry = outcome(self.ended.pop(), ending=ending, prompt_tokens=tokens, completion_tokens=tokens)
        self.controller.settle(entry, self.now_s)
        self.take()

    @rule(step_s=st.sampled_from([0.1, 1.0, 9.0]))
    def tick(self, step_s: float) -> None:
        self.now_s += step_s
        self.controller.tick(self.now_s)
        self.take()

    @invariant()
    def no_tenant_has_more_in_the_pool_than_its_contract_allows(self) -> None:
        counts = Counter(work.tenant for work in self.inside.values() if work.contract is not None)
        assert all(count <= PLACES for count in counts.values()), counts

    @invariant()
    def no_tenant_was_let_in_more_often_than_its_contract_allows(self) -> None:
        assert all(count <= REQUESTS * (1.0 + self.now_s / 60.0) + 1e-6 for count in self.admitted.values())

    @invariant()
    def a_request_has_one_live_try(self) -> None:
        waiting = Counter(
            work.attempt.same
            for work in self.inside.values()
            if work.attempt is not None and work.id not in self.running
        )
        assert all(count == 1 for count in waiting.values()), waiting

    def teardown(self) -> None:
        """When all has gone and a few minutes have passed, every tenant has its whole contract again."""
        for work_id in list(self.inside):
            self.controller.release(work_id, self.now_s)
        self.now_s += 600.0
        self.controller.tick(self.now_s)
        for tenant in TENANTS:
            for number in range(PLACES):
                work = patient(f"{tenant}{number}", tenant=tenant, prompt_tokens=1000, contract=CONTRACT)
                decision = self.controller.submit(work, self.now_s)
                assert isinstance(decision, Admit | Enqueue), decision
        late = self.controller.submit(patient("late", tenant="acme", contract=CONTRACT), self.now_s)
        assert isinstance(late, Reject)
        assert late.reason.rule is Rule.TENANT_CONCURRENCY

    def runs(self, work_id: str) -> None:
        self.running.add(work_id)
        self.admitted[self.inside[work_id].tenant] += work_id[0] == "w"

    def take(self) -> None:
        for verdict in self.controller.take_verdicts():
            self.verdict(verdict)

    def verdict(self, verdict: Verdict) -> None:
        if isinstance(verdict, Admit):
            self.runs(verdict.id)
        else:
            del self.inside[verdict.id]


TestContracts = ContractsMachine.TestCase
TestContracts.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
