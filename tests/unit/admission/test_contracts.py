"""What a tenant's contract allows, what it counts, and what it gives back."""

from typing import Any

import pytest

from tests.unit.admission.builders import outcome, patient, pool, words
from tidegate.admission.contract import Contract
from tidegate.admission.contracts import ACCOUNTS_MAX, Contracts
from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Decision, Reject
from tidegate.admission.outcome import Ending

ONE_AT_A_TIME = Contract(name="gold", requests=1, requests_per_minute=2)
SIXTY_TOKENS = Contract(name="gold", tokens_per_minute=60)


def ask(controller: Controller, work_id: str, now_s: float, contract: Contract, **facts: Any) -> str:
    """Submit a request of a tenant under a contract; the decision in short."""
    return words([submit(controller, work_id, now_s, contract, **facts)])[0]


def submit(controller: Controller, work_id: str, now_s: float, contract: Contract, **facts: Any) -> Decision:
    """Submit a request of a tenant under a contract."""
    return controller.submit(patient(work_id, contract=contract, **({"tenant": "acme"} | facts)), now_s)


def test_what_one_limit_refuses_spends_nothing_of_another() -> None:
    """Two requests a minute, one at a time: the one refused for the second limit leaves the first as it was."""
    controller = pool(slots=8)
    assert ask(controller, "a", 0.0, ONE_AT_A_TIME) == "a admit"
    assert ask(controller, "b", 0.05, ONE_AT_A_TIME) == "b reject tenant_concurrency"
    controller.release("a", 0.3)
    assert ask(controller, "c", 0.4, ONE_AT_A_TIME) == "c admit"
    controller.release("c", 0.5)
    assert ask(controller, "d", 0.6, ONE_AT_A_TIME) == "d reject tenant_requests"


def test_what_the_pool_refuses_spends_nothing_of_the_contract() -> None:
    """A refusal for the pool's sake takes neither a place nor a request nor a token of the tenant's."""
    controller = pool(slots=1, queue_len=0)
    controller.submit(patient("other"), 0.0)
    for attempt in range(5):
        assert ask(controller, f"a{attempt}", 0.0, ONE_AT_A_TIME) == f"a{attempt} reject queue_full"
    controller.release("other", 1.0)
    assert ask(controller, "b", 1.0, ONE_AT_A_TIME) == "b admit"


@pytest.mark.parametrize("how", ["client leaves", "expired", "drained"])
def test_what_waited_in_vain_is_given_back(how: str) -> None:
    """One that waits takes a place; if it never runs, its place, its request and its tokens come back."""
    controller = pool(slots=1)
    controller.submit(patient("other"), 0.0)
    contract = Contract(requests=1, requests_per_minute=1, tokens_per_minute=60)
    assert ask(controller, "a", 0.0, contract, hold_s_max=5.0) == "a enqueue slots"
    assert ask(controller, "b", 0.0, contract) == "b reject tenant_concurrency"
    if how == "client leaves":
        controller.release("a", 1.0)
    elif how == "expired":
        controller.tick(6.0)
        assert words(controller.take_verdicts()) == ["a reject expired"]
    else:
        controller.drain(1.0)
        assert words(controller.take_verdicts()) == ["a reject shutting_down"]
        assert ask(controller, "c", 6.0, contract) == "c reject shutting_down"
        return
    controller.release("other", 6.0)
    assert ask(controller, "c", 6.0, contract) == "c admit"


def test_tokens_are_reserved_as_expected_and_settled_with_the_truth() -> None:
    """What was expected is taken when a request comes; when its truth comes, what it took instead."""
    controller = pool(slots=8)
    assert ask(controller, "a", 0.0, SIXTY_TOKENS, prompt_tokens=40, completion_tokens_max=1) == "a admit"
    assert ask(controller, "b", 0.0, SIXTY_TOKENS, prompt_tokens=40) == "b reject tenant_tokens"
    controller.release("a", 1.0)
    controller.settle(outcome("a", prompt_tokens=5, completion_tokens=1), 1.0)
    assert ask(controller, "c", 1.0, SIXTY_TOKENS, prompt_tokens=40) == "c admit"


@pytest.mark.parametrize("settled_first", [False, True])
def test_more_tokens_than_expected_are_owed(settled_first: bool) -> None:
    """An answer longer than expected leaves a debt that the next request waits for, whichever event comes first."""
    controller = pool(slots=8)
    assert ask(controller, "a", 0.0, SIXTY_TOKENS) == "a admit"
    steps = [
        lambda: controller.settle(outcome("a", prompt_tokens=10, completion_tokens=80), 1.0),
        lambda: controller.release("a", 1.0),
    ]
    for step in steps if settled_first else reversed(steps):
        step()
    refused = submit(controller, "b", 1.0, SIXTY_TOKENS, prompt_tokens=4)
    assert isinstance(refused, Reject)
    assert (refused.status, str(refused.reason)) == (
        429,
        "tenant_tokens; measured=94; threshold=60; unit=tokens",
    )
    assert refused.retry_after_s == pytest.approx(30.0)  # 34 s in truth, more than clients wait for
    assert ask(controller, "c", 35.5, SIXTY_TOKENS, prompt_tokens=4) == "c admit"


def test_an_answer_cut_short_costs_what_was_generated() -> None:
    """The client leaves a long answer after a second: its tenant pays for a part of it, not for all nor for nothing."""
    contract = Contract(tokens_per_minute=10_000)
    facts = {"prompt_tokens": 10, "completion_tokens_max": 8000, "log_mean": 8.9, "log_sigma": 0.1}
    controller = pool(slots=8)
    assert ask(controller, "a", 0.0, contract, **facts) == "a admit"
    assert ask(controller, "b", 0.0, contract, **facts) == "b reject tenant_tokens"
    controller.release("a", 1.0)
    controller.settle(outcome("a", ending=Ending.CLIENT_CANCELLED, completion_tokens=None), 1.0)
    assert ask(controller, "c", 1.0, contract, **facts) == "c admit"
    controller.release("c", 2.0)
    controller.settle(outcome("c", ending=Ending.CLIENT_CANCELLED, completion_tokens=7000), 2.0)
    assert ask(controller, "d", 2.0, contract, **facts) == "d reject tenant_tokens"


@pytest.mark.parametrize("ending", [Ending.ENGINE_FAILED, Ending.ENGINE_REFUSED, Ending.BAD_REQUEST])
def test_what_the_engine_did_not_do_costs_no_tokens(ending: Ending) -> None:
    """A request that the engine refused or broke off gives all its tokens back."""
    controller = pool(slots=8)
    assert ask(controller, "a", 0.0, SIXTY_TOKENS, prompt_tokens=50) == "a admit"
    controller.release("a", 0.1)
    controller.settle(outcome("a", ending=ending, status=500, completion_tokens=None), 0.1)
    assert ask(controller, "b", 0.1, SIXTY_TOKENS, prompt_tokens=50) == "b admit"


def test_one_that_cannot_be_refused_is_counted_all_the_same() -> None:
    """An unknown API goes past the contract and takes its place in it."""
    controller = pool(slots=8)
    assert ask(controller, "a", 0.0, ONE_AT_A_TIME, refusable=False) == "a admit"
    assert ask(controller, "b", 0.0, ONE_AT_A_TIME, refusable=False) == "b admit"
    controller.release("a", 1.0)
    assert ask(controller, "c", 1.0, ONE_AT_A_TIME) == "c reject tenant_concurrency"


def test_tenants_and_classes_have_accounts_of_their_own() -> None:
    """What one tenant spends takes nothing from another, nor from itself in another class."""
    controller = pool(slots=8)
    batch = Contract(name="batch", requests=1)
    assert ask(controller, "a", 0.0, ONE_AT_A_TIME) == "a admit"
    assert ask(controller, "b", 0.0, ONE_AT_A_TIME, tenant="globex") == "b admit"
    assert ask(controller, "c", 0.0, batch) == "c admit"
    assert ask(controller, "d", 0.0, batch) == "d reject tenant_concurrency"


def test_a_contract_that_changes_is_in_force_at_once() -> None:
    """With a higher limit the next request goes; what was spent stays spent."""
    controller = pool(slots=8)
    assert ask(controller, "a", 0.0, Contract(requests=1, requests_per_minute=2)) == "a admit"
    wider = Contract(requests=5, requests_per_minute=2)
    assert ask(controller, "b", 0.0, wider) == "b admit"
    assert ask(controller, "c", 0.0, wider) == "c reject tenant_requests"


def test_the_first_look_foresees_the_refusal() -> None:
    """A request whose tenant has nothing left is refused before its body is uploaded, and the look books nothing."""
    controller = pool(slots=8)
    assert ask(controller, "a", 0.0, ONE_AT_A_TIME) == "a admit"
    foreseen = controller.preview(patient("b", tenant="acme", contract=ONE_AT_A_TIME), 0.1)
    assert foreseen is not None
    assert words([foreseen]) == ["b reject tenant_concurrency"]
    controller.release("a", 0.2)
    assert controller.preview(patient("b", tenant="acme", contract=ONE_AT_A_TIME), 0.2) is None


def test_accounts_are_bounded_and_those_in_use_are_kept() -> None:
    """However many tenants come, 4,096 accounts are kept, and nobody who has something in the pool is forgotten."""
    contracts = Contracts()
    held = patient("held", tenant="held", contract=ONE_AT_A_TIME)
    contracts.let_in(held, 1.0, 0.0)
    for number in range(2 * ACCOUNTS_MAX):
        work = patient(f"w{number}", tenant=f"t{number}", contract=ONE_AT_A_TIME)
        contracts.let_in(work, 1.0, 0.0)
        contracts.ended(work.id, 0.0)
    assert len(contracts) <= ACCOUNTS_MAX
    assert contracts.breach(held, 1.0, 0.0) is not None


def test_an_account_like_a_fresh_one_needs_no_memory() -> None:
    """When all is given back, the account is gone."""
    contracts = Contracts()
    work = patient("a", tenant="acme", contract=Contract(requests=3, tokens_per_minute=600))
    contracts.let_in(work, 100.0, 0.0)
    contracts.turned_away("a", 0.0)
    assert len(contracts) == 0
    contracts.let_in(work, 100.0, 0.0)
    contracts.ended("a", 1.0)
    assert len(contracts) == 1
    contracts.settle("a", 10.0, 100.0)
    assert len(contracts) == 0


def test_what_is_admitted_has_no_contract_unless_its_class_grants_one() -> None:
    """Without a contract nothing is counted."""
    controller = pool(slots=8)
    assert all(isinstance(controller.submit(patient(f"w{n}"), 0.0), Admit) for n in range(8))
