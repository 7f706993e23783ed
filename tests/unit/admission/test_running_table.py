"""The table of what runs: sums that follow every change, and the coming peak against a count step by step."""

from math import exp, inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.remaining import remaining_tokens
from tidegate.admission.running_table import RunningTable

REQUESTS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(1, 3)), max_size=12)
"""Prompt tokens, steps to come, sequences."""


def add(table: RunningTable, work_id: str, **facts: Any) -> None:
    defaults: dict[str, Any] = {
        "prompt_tokens": 100.0,
        "expected_tokens": 50.0,
        "log_mean": 3.0,
        "log_sigma": 0.8,
        "tokens_max": inf,
        "sequences": 1,
        "estimate": (3.0, 0.8),
    }
    table.add(work_id, **(defaults | facts))


def remaining(generated: float, *, log_mean: float = 3.0, log_sigma: float = 0.8, cap: float = inf) -> float:
    columns = [np.array([value]) for value in (log_mean, log_sigma, generated, cap)]
    return float(remaining_tokens(*columns)[0])


def test_before_its_first_token_a_request_holds_its_prompt() -> None:
    """It is a sequence, but none that decodes, and what is to come of it is what was expected."""
    table = RunningTable()
    add(table, "a", sequences=2)
    assert (len(table), table.sequences, table.decoding) == (1, 2, 0)
    assert (table.held_tokens, table.remaining_tokens, table.decoding_held_tokens) == (100.0, 50.0, 0.0)
    assert table.generated("a", 1000.0) == 0.0
    table.refresh(1000.0)
    assert table.held_tokens == 100.0


def test_from_its_first_token_on_it_gains_one_a_sequence_and_step() -> None:
    """Two sequences that began in step 10 have 30 tokens by step 25, and hold them beside their prompt."""
    table = RunningTable()
    add(table, "a", sequences=2)
    table.start("a", 10.0)
    assert table.decoding == 2
    assert table.generated("a", 25.0) == 30.0
    table.refresh(25.0)
    assert (table.held_tokens, table.decoding_held_tokens) == (130.0, 130.0)
    assert table.remaining_tokens == remaining(30.0)


def test_nothing_grows_past_its_cap() -> None:
    """An answer of at most 20 tokens holds no more than the 19 whose KV is needed, and one is still to come."""
    table = RunningTable()
    add(table, "a", tokens_max=20.0)
    table.start("a", 0.0)
    table.refresh(500.0)
    assert (table.held_tokens, table.remaining_tokens) == (119.0, 1.0)


def test_a_first_token_taken_back_stops_the_growth() -> None:
    """Who was thought to decode and does not is a prompt again; its first token may come later."""
    table = RunningTable()
    add(table, "a")
    table.start("a", 5.0)
    table.unstart("a")
    assert (table.decoding, table.decoding_held_tokens, table.generated("a", 50.0)) == (0, 0.0, 0.0)
    table.start("a", 50.0)
    assert table.generated("a", 52.0) == 2.0


def test_who_leaves_takes_all_it_held() -> None:
    """The sums are those of the others, whatever the leaver had generated; an empty table holds exactly nothing."""
    table = RunningTable()
    add(table, "a", prompt_tokens=0.1)
    add(table, "b", prompt_tokens=0.2)
    table.start("a", 0.0)
    table.refresh(7.0)
    table.remove("a")
    assert (table.sequences, table.decoding) == (1, 0)
    assert table.held_tokens == pytest.approx(0.2)
    table.remove("b")
    assert (table.held_tokens, table.remaining_tokens, table.decoding_held_tokens) == (0.0, 0.0, 0.0)


def test_a_place_is_used_again() -> None:
    """Nothing of who had the row before is left in it."""
    table = RunningTable()
    add(table, "a")
    add(table, "b")
    table.start("a", 0.0)
    table.remove("a")
    add(table, "c")
    table.refresh(100.0)
    assert table.held_tokens == 200.0
    assert table.generated("c", 100.0) == 0.0


def test_more_than_a_table_of_64() -> None:
    """It grows, and sums stay sums."""
    table = RunningTable()
    for number in range(200):
        add(table, str(number), sequences=3)
        table.start(str(number), 0.0)
    table.refresh(10.0)
    assert (table.sequences, table.decoding, table.held_tokens) == (600, 600, 200 * 130.0)


def test_what_was_never_there_is_a_bug() -> None:
    """An id runs once, and its first token comes once."""
    table = RunningTable()
    add(table, "a")
    table.start("a", 0.0)
    with pytest.raises(AssertionError):
        add(table, "a")
    with pytest.raises(AssertionError):
        table.start("a", 1.0)


def test_estimates_are_those_before_calibration() -> None:
    """With the tokens that came, for whoever learns from answers that still run."""
    table = RunningTable()
    add(table, "a", log_mean=4.0, estimate=(3.5, 0.6))
    add(table, "b", estimate=(1.0, 0.2))
    table.remove("b")
    table.start("a", 2.0)
    table.refresh(12.0)
    assert [column.tolist() for column in table.estimates()] == [[3.5], [0.6], [10.0]]


def test_the_peak_of_two() -> None:
    """A holds 10 and has 8 steps to go, b holds 30 and has 2: when b ends both hold 12 and 32, later a alone 18."""
    table = RunningTable()
    add(table, "a", prompt_tokens=10.0, expected_tokens=8.0)
    assert table.peak_tokens(30.0, 2.0, 1) == 44.0
    assert table.peak_tokens(1.0, 2.0, 1) == 18.0


def test_sequences_share_a_prompt_and_end_together() -> None:
    """Three sequences with 12 tokens to come in all end after 4 steps, and hold 12 more then."""
    assert RunningTable().peak_tokens(10.0, 12.0, 3) == 22.0


@given(REQUESTS, st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(1, 3)), st.sets(st.integers(0, 11)))
def test_the_peak_is_the_most_held_in_any_step(
    requests: list[tuple[int, int, int]], newcomer: tuple[int, int, int], leavers: set[int]
) -> None:
    """As counted step by step: everyone who has not ended holds its prompt and one token a sequence and step."""
    table = RunningTable()
    for number, (prompt, steps, sequences) in enumerate(requests):
        add(
            table,
            str(number),
            prompt_tokens=float(prompt),
            expected_tokens=float(steps * sequences),
            sequences=sequences,
        )
    for number in leavers & set(range(len(requests))):
        table.remove(str(number))
    running = [row for number, row in enumerate(requests) if number not in leavers] + [newcomer]
    held_by_step = [
        sum(prompt + step * sequences for prompt, steps, sequences in running if step <= steps) for step in range(31)
    ]
    prompt, steps, sequences = newcomer
    peak = table.peak_tokens(float(prompt), float(steps * sequences), sequences)
    assert peak == pytest.approx(max(held_by_step))


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "start", "unstart", "remove", "refresh"]), st.integers(0, 10**6)),
        max_size=120,
    )
)
def test_sums_are_sums(events: list[tuple[str, int]]) -> None:
    """Whatever comes and goes, the sums are what adding up the rows gives."""
    table, step = RunningTable(), 0.0
    rows: dict[str, tuple[float, int, bool]] = {}  # prompt, sequences, decoding
    held: dict[str, float] = {}
    for number, (event, pick) in enumerate(events):
        step += 0.5
        name = sorted(rows)[pick % len(rows)] if rows else ""
        match event:
            case "add":
                rows[str(number)] = (float(pick), pick % 3 + 1, False)
                held[str(number)] = float(pick)
                add(table, str(number), prompt_tokens=float(pick), sequences=pick % 3 + 1)
            case "refresh":
                table.refresh(step)
                held = {name: rows[name][0] + table.generated(name, step) for name in rows}
            case "remove" if rows:
                table.remove(name)
                del rows[name], held[name]
            case "start" if rows and not rows[name][2]:
                table.start(name, step)
                rows[name] = (*rows[name][:2], True)
            case "unstart" if rows and rows[name][2]:
                table.unstart(name)
                rows[name] = (*rows[name][:2], False)
        assert len(table) == len(rows)
        assert table.sequences == sum(sequences for _, sequences, _ in rows.values())
        assert table.decoding == sum(sequences for _, sequences, decoding in rows.values() if decoding)
        assert table.held_tokens == pytest.approx(sum(held.values()))
        decoding_held = sum(held[name] for name, row in rows.items() if row[2])
        assert table.decoding_held_tokens == pytest.approx(decoding_held, abs=1e-6)
        assert rows or (table.held_tokens, table.remaining_tokens, table.decoding_held_tokens) == (0.0, 0.0, 0.0)


def test_what_outlives_its_estimate_is_expected_to_go_on() -> None:
    """An answer at ten times what was expected has more to come than one that has just begun."""
    table = RunningTable()
    add(table, "a")
    table.start("a", 0.0)
    expected = exp(3.0 + 0.8**2 / 2.0)
    table.refresh(10.0 * expected)
    assert table.remaining_tokens > expected
