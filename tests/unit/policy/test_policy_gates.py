"""The queue's order and weight, the gates in force and the guards' figures, as keys."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.limits import GATES_DEFAULT, GateName, Limits
from tidegate.admission.queues.orders import Order
from tidegate.errors import PolicyError
from tidegate.policy import KEYS, PoolPolicy, Scope, parse_policy

GATES, ORDER, ALPHA, FAIR = "tidegate-gates", "tidegate-queue-order", "tidegate-queue-alpha", "tidegate-queue-fair"
CONCURRENCY, P99_TARGET, FLOOR = "tidegate-concurrency-max", "tidegate-p99-target-ms", "tidegate-memory-floor-mib"


def pool(*pairs: tuple[str, str]) -> PoolPolicy:
    return parse_policy(pairs, default_pool="p").pool


def refusal(*pairs: tuple[str, str]) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        pool(*pairs)
    return caught.value


@pytest.mark.parametrize("name", [ORDER, ALPHA, FAIR, GATES, CONCURRENCY, P99_TARGET, FLOOR])
def test_they_are_of_the_pool(name: str) -> None:
    """Two routes to one pool share its queue and its engines, so none of these may differ between them."""
    assert KEYS[name].scope is Scope.POOL


@pytest.mark.parametrize("order", Order)
def test_every_order_is_a_word(order: Order) -> None:
    """Each order is named as the core names it."""
    assert pool((ORDER, order.value)).limits.order is order


@pytest.mark.parametrize(
    ("text", "alpha"), [("0", 0.0), ("3", 3.0), ("0.5", 0.5), ("2.75", 2.75), ("010", 10.0), ("1000", 1000.0)]
)
def test_alpha_is_a_plain_decimal(text: str, alpha: float) -> None:
    """Up to two places, from 0 to 1000."""
    assert pool((ALPHA, text)).limits.alpha == alpha


@pytest.mark.parametrize(
    "text",
    ["", " 3", "-1", "+1", "1e2", ".5", "1.", "0.125", "1,5", "NaN", "inf", "1000.01", "1001", "10000", "\u0663"],
)
def test_anything_else_is_no_alpha(text: str) -> None:
    """The error names the key, the value and what would be right."""
    error = refusal((ALPHA, text))
    assert (error.key, error.value, error.expected) == (ALPHA, text, KEYS[ALPHA].expected)
    assert "from 0 to 1000" in error.expected


def test_the_p99_window_has_a_target_of_its_own() -> None:
    """Two seconds unless stated, in milliseconds where it is."""
    assert pool((GATES, "p99-window")).limits.p99_target_s == 2.0
    assert pool((GATES, "p99-window"), (P99_TARGET, "350")).limits.p99_target_s == 0.35


def test_the_defaults_stated_change_nothing() -> None:
    """What the table gives as defaults is what holds without the keys."""
    for name in (ORDER, ALPHA, FAIR, GATES):
        assert pool((name, KEYS[name].default)) == pool()
    assert pool().limits == Limits()
    assert pool().limits.gates == GATES_DEFAULT


def test_gates_are_a_list_of_names() -> None:
    """One or several, in any order, with spaces around the commas or without."""
    assert pool((GATES, "kv")).limits.gates == (GateName.KV,)
    for names in permutations(("slots", "kv", "littles-law")):
        for comma in (",", ", ", " , "):
            assert set(pool((GATES, comma.join(names))).limits.gates) == set(map(GateName, names))


def test_the_order_in_which_gates_are_listed_says_nothing() -> None:
    """Two routes that list the same gates in another order are no conflict."""
    assert pool((GATES, "kv,slots")) == pool((GATES, "slots,kv"))


@pytest.mark.parametrize(
    "text",
    ["", ",", "slots,", ",slots", "slots,slots", "slots kv", "Slots", "slot", "kv_tokens", "slots;kv", "none",
     "slots\n", "slots,kv,prefill,tpot,concurrency,p99-window,littles-law,memory-floor,slots"],
)  # fmt: skip
def test_what_is_no_list_of_gates_is_refused(text: str) -> None:
    """An unknown name, an empty one or one that is there twice is a mistake, and the error lists the names."""
    error = refusal((GATES, text))
    assert (error.key, error.value) == (GATES, text)
    assert all(name.value in error.expected for name in GateName)


def test_the_memory_floor_has_a_default() -> None:
    """Four gigabytes where the gate is in force and no other figure is stated; none where it is not."""
    assert pool((GATES, "memory-floor")).limits.memory_floor_mib == 4096
    assert pool((GATES, "memory-floor"), (FLOOR, "8000")).limits.memory_floor_mib == 8000
    assert pool((GATES, "slots")).limits.memory_floor_mib is None
    assert KEYS[FLOOR].default == "4096"


def test_a_figure_without_its_guard_is_a_mistake() -> None:
    """It would do nothing; the error names the gate that is missing."""
    for others in ((), ((GATES, "slots,kv"),)):
        idle = refusal((FLOOR, "5"), *others)
        assert (idle.key, idle.value) == (FLOOR, "5")
        assert GATES in idle.expected
        assert "memory-floor" in idle.expected


@pytest.mark.parametrize(("gate", "key", "highest"), [("concurrency", CONCURRENCY, 1_000_000)])
def test_a_guard_and_its_figure_come_together(gate: str, key: str, highest: int) -> None:
    """A guard without its figure would stand open, a figure without its guard would do nothing: both are mistakes,
    and each error names the key that is missing.
    """
    gates = (GATES, f"slots,{gate}")
    for good in (1, highest):
        assert pool(gates, (key, str(good))).limits.gates == (GateName.SLOTS, GateName(gate))
    lonely = refusal(gates)
    assert (lonely.key, lonely.value) == gates
    assert key in lonely.expected
    for others in ((), ((GATES, "slots,kv"),)):
        idle = refusal((key, "5"), *others)
        assert (idle.key, idle.value) == (key, "5")
        assert GATES in idle.expected
        assert gate in idle.expected


@pytest.mark.parametrize(
    ("gate", "key", "highest"),
    [
        ("concurrency", CONCURRENCY, 1_000_000),
        ("memory-floor", FLOOR, 10_000_000),
        ("p99-window", P99_TARGET, 3_600_000),
    ],
)
def test_figures_of_guards_keep_their_range(gate: str, key: str, highest: int) -> None:
    """Both ends of the range are good; a figure out of it is refused in words that name the range."""
    for good in (1, highest):
        assert pool((GATES, gate), (key, str(good))).limits.gates == (GateName(gate),)
    for bad in ("0", "-1", str(highest + 1), "1.5", "many", ""):
        error = refusal((GATES, gate), (key, bad))
        assert (error.key, error.value) == (key, bad)
        assert f"from 1 to {highest}" in error.expected


def read(*pairs: tuple[str, str]) -> Limits | PolicyError:
    try:
        return pool(*pairs).limits
    except PolicyError as error:
        return error


@given(text=st.text(max_size=40) | st.lists(st.sampled_from([*GateName, "", "slot"]), max_size=5).map(",".join))
def test_any_text_is_a_list_of_gates_or_a_mistake(text: str) -> None:
    """What is read are names of gates, each once and each one written; all else is an error of this key."""
    words = [part.strip(" ") for part in text.split(",")]
    figures = [(key, "1") for gate, key in (("concurrency", CONCURRENCY), ("memory-floor", FLOOR)) if gate in words]
    limits = read((GATES, text), *figures)
    if set(words) <= set(GateName) and len(set(words)) == len(words):
        assert isinstance(limits, Limits)
        assert sorted(limits.gates) == sorted(words)
    else:
        assert isinstance(limits, PolicyError)
        assert limits.key == GATES


@given(text=st.text(max_size=12) | st.decimals(-10, 2000, places=2).map(str))
def test_any_text_is_an_alpha_within_bounds_or_a_mistake(text: str) -> None:
    """No text gives an alpha below 0, above 1000 or not a number."""
    limits = read((ALPHA, text))
    if isinstance(limits, PolicyError):
        assert limits.key == ALPHA
    else:
        assert 0.0 <= limits.alpha <= 1000.0
