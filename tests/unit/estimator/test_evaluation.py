"""The table of figures: each column by hand, and the averages."""

from itertools import combinations
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_estimator.evaluation import evaluate, macro_of, score
from tidegate_estimator.kendall import kendall_tau
from tidegate_estimator.training import Progressive

small = st.integers(0, 6)


def doubles(*values: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array(values, np.float64)


def tau_by_pairs(x: list[int], y: list[int]) -> float:
    """The definition, pair by pair."""
    signs = [((a[0] > b[0]) - (a[0] < b[0]), (a[1] > b[1]) - (a[1] < b[1])) for a, b in combinations(zip(x, y), 2)]  # noqa: B905
    agree = sum(p * q for p, q in signs)
    untied = sum(p != 0 for p, _ in signs) * sum(q != 0 for _, q in signs)
    return agree / sqrt(untied) if untied else 0.0


@given(st.lists(st.tuples(small, small), min_size=1, max_size=40))
def test_tau_is_what_counting_pairs_gives(pairs: list[tuple[int, int]]) -> None:
    """Whatever the ties, the fast count equals the definition."""
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    assert kendall_tau(doubles(*x), doubles(*y)) == pytest.approx(tau_by_pairs(x, y), abs=1e-12)


def test_tau_of_an_order_its_reverse_and_a_constant() -> None:
    """1, -1, and 0 where there is no order to agree with."""
    x = np.arange(1000.0)
    assert kendall_tau(x, x**3) == pytest.approx(1.0)
    assert kendall_tau(x, -x) == pytest.approx(-1.0)
    assert kendall_tau(x, np.ones(1000)) == 0.0


def test_each_figure_by_hand() -> None:
    """Two answers, one above its p90 and one below."""
    scores = score(doubles(100, 10), doubles(50, 20), doubles(90, 30), doubles(60, 28))
    assert scores.n == 2
    assert scores.mae == pytest.approx(30)
    assert scores.mdape == pytest.approx((0.5 + 1.0) / 2)
    assert scores.log_rmse == pytest.approx(sqrt((log(101 / 51) ** 2 + log(11 / 21) ** 2) / 2))
    assert scores.tau == pytest.approx(1.0)
    assert scores.p90_coverage == pytest.approx(0.5)
    assert scores.p90_pinball == pytest.approx((0.9 * 10 + 0.1 * 20) / 2)
    assert scores.mean_bias == pytest.approx(88 / 110 - 1)


def progressive(tenants: dict[str, int]) -> Progressive:
    """Tenants with so many answers; the n-th tenant's are all n short of the truth."""
    found = Progressive()
    for off, (tenant, count) in enumerate(tenants.items(), start=1):
        for at in range(count):
            found.tenants.append(tenant)
            found.observed.append(at + off)
            found.p50.append(at)
            found.p90.append(at)
            found.mean.append(at)
    return found


def test_the_macro_row_averages_tenants_not_answers() -> None:
    """A tenant with three times the answers counts as much as the other; one with too few has a row and no vote."""
    evaluation = evaluate(progressive({"quiet": 30, "busy": 90, "rare": 5}))
    assert [name for name, _ in evaluation.tenants] == ["busy", "quiet", "rare"]
    assert evaluation.macro is not None
    assert evaluation.macro.mae == pytest.approx(1.5)
    assert evaluation.macro.n == 2
    assert evaluation.overall is not None
    assert evaluation.overall.mae == pytest.approx((30 + 180 + 15) / 125)


def test_no_answers_no_figures() -> None:
    """Nothing predicted gives an empty table; tenants that are all small give no macro row."""
    empty = evaluate(Progressive())
    assert (empty.tenants, empty.macro, empty.overall) == ([], None, None)
    small_ones = evaluate(progressive({"a": 3, "b": 4}))
    assert small_ones.macro is None
    assert small_ones.overall is not None
    assert macro_of([scores for _, scores in small_ones.tenants], answers_min=1) is not None
