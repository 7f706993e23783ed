"""The line of prompts: first come first served, and nothing of it lost or done twice."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.prefill_line import PrefillLine

EVENTS = ["push", "push", "advance", "complete", "withdraw", "owe", "skip", "put back"]


def line_of(*prompts: float) -> PrefillLine:
    """Prompts of so many tokens, named `0`, `1`, .. in order of arrival."""
    line = PrefillLine()
    for number, prompt_tokens in enumerate(prompts):
        line.push(str(number), prompt_tokens)
    return line


def test_the_first_is_done_first() -> None:
    """What is done is the first one's; it leaves when it is popped, and the next begins at nothing."""
    line = line_of(100.0, 50.0)
    line.advance(60.0)
    assert (line.left_tokens, line.done_tokens, line.position_tokens) == (90.0, 60.0, 60.0)
    line.advance(40.0)
    assert line.pop() == "0"
    assert (line.left_tokens, line.done_tokens, line.position_tokens, line.head_tokens) == (50.0, 0.0, 100.0, 50.0)


def test_it_never_runs_past_the_first() -> None:
    """Whoever advances pops at the end of each prompt; what was too much is lost, not done for the next."""
    line = line_of(100.0, 50.0)
    line.advance(120.0)
    assert (line.done_tokens, line.left_tokens) == (100.0, 50.0)


def test_it_can_be_held_short_of_the_end() -> None:
    """At 95 % where a first token would have been seen; what is done already stays done."""
    line = line_of(100.0)
    line.advance(99.0, head_share_max=0.95)
    assert line.done_tokens == 95.0
    line.advance(2.0)
    line.advance(1.0, head_share_max=0.95)
    assert line.done_tokens == 97.0


def test_attention_is_half_the_square() -> None:
    """A prompt of p tokens attends over p^2 / 2 pairs, a part of it over those of the part."""
    line = line_of(100.0, 40.0)
    line.advance(60.0)
    assert line.attention == 1800.0
    line.pop()
    assert line.attention == 5000.0
    line.complete("1")
    assert line.attention == 5800.0


def test_one_done_out_of_turn() -> None:
    """A first token seen of the second leaves the first where it is, with what is done of it."""
    line = line_of(100.0, 50.0)
    line.advance(30.0)
    line.complete("1")
    assert (line.left_tokens, line.done_tokens, line.position_tokens) == (70.0, 30.0, 80.0)
    assert list(line) == ["0"]


def test_the_first_withdrawn() -> None:
    """What was done of it was done all the same; the rest passes undone."""
    line = line_of(100.0, 50.0)
    line.advance(30.0)
    line.withdraw("0")
    assert (line.left_tokens, line.position_tokens, line.frontier_tokens) == (50.0, 30.0, 100.0)
    assert line.attention == 450.0


def test_another_withdrawn() -> None:
    """Nothing was done of it, and whoever stands behind it has come nearer."""
    line = line_of(100.0, 50.0)
    line.advance(30.0)
    line.withdraw("1")
    assert (line.left_tokens, line.position_tokens) == (70.0, 30.0)


def test_who_leaves_behind_it_does_not_bring_a_prompt_nearer() -> None:
    """The engine is where the line said when the first is done, though the second has left; for the third too."""
    line = PrefillLine()
    promised = [line.push(name, 100.0) for name in ("0", "1", "2")]
    line.withdraw("1")
    line.advance(100.0)
    assert line.frontier_tokens == promised[0]
    line.pop()
    line.advance(100.0)
    assert line.frontier_tokens == promised[2]


def test_one_put_back_is_to_be_done_again() -> None:
    """It stands first, with nothing done, and the line is longer by it and by what was done of the one behind."""
    line = line_of(100.0, 50.0)
    line.advance(100.0)
    line.pop()
    line.advance(20.0)
    line.put_back("0", 100.0)
    assert list(line) == ["0", "1"]
    assert (line.left_tokens, line.done_tokens, line.position_tokens) == (150.0, 0.0, 20.0)


def test_debt_comes_before_the_first() -> None:
    """An engine further behind than reckoned has so much more to do first."""
    line = line_of(100.0)
    line.owe(30.0, 1000.0)
    assert line.left_tokens == 130.0
    line.advance(40.0)
    assert (line.debt_tokens, line.done_tokens, line.position_tokens) == (0.0, 10.0, 10.0)


def test_debt_has_a_bound() -> None:
    """More than it is not owed; less than nothing takes debt away, to nothing at most, and all of it is counted."""
    line = line_of(100.0)
    line.owe(80.0, 50.0)
    assert (line.debt_tokens, line.owed_tokens) == (50.0, 50.0)
    line.owe(-20.0, 50.0)
    line.owe(1.0, 10.0)  # a bound below what is owed already takes nothing away
    assert (line.debt_tokens, line.owed_tokens) == (30.0, 30.0)
    line.owe(-inf, 0.0)
    assert (line.debt_tokens, line.owed_tokens) == (0.0, 0.0)


def test_an_engine_further_ahead() -> None:
    """Skipping pays the debt, then does the first prompt, and says what is left for the next."""
    line = line_of(100.0, 50.0)
    line.owe(20.0, 1000.0)
    assert line.skip(50.0) == 0.0
    assert (line.debt_tokens, line.done_tokens) == (0.0, 30.0)
    assert line.skip(100.0) == 30.0
    assert line.done_tokens == 100.0
    assert line.owed_tokens == 20.0 - 20.0 - 30.0 - 70.0


def test_a_line_without_anybody() -> None:
    """Nothing is left, nothing is first, and to advance does nothing."""
    line = PrefillLine()
    line.advance(100.0)
    assert line.skip(7.0) == 7.0
    assert (len(line), line.left_tokens, line.head_tokens, line.position_tokens) == (0, 0.0, 0.0, 0.0)


def test_an_id_stands_in_line_once() -> None:
    """To push it again, or to put it back while it is there, is a bug."""
    line = line_of(100.0)
    with pytest.raises(AssertionError):
        line.push("0", 1.0)
    with pytest.raises(AssertionError):
        line.put_back("0", 1.0)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 300), st.integers(0, 50)), max_size=80))
def test_what_is_left_is_what_is_in_line(events: list[tuple[str, int, int]]) -> None:
    """Left is never below nothing and always prompts - done + debt; time moves the position on, and only to put one
    back moves it back, by what that one has to do again.
    """
    line, prompts, done_with, pairs = PrefillLine(), dict[str, float](), list[tuple[str, float]](), 0.0
    for number, (event, tokens, pick) in enumerate(events):
        position, left = line.position_tokens, line.left_tokens
        name = list(prompts)[pick % len(prompts)] if prompts else ""
        match event:
            case "push":
                line.push(str(number), float(tokens))
                prompts[str(number)] = float(tokens)
            case "advance":
                line.advance(float(tokens))
            case "owe":
                line.owe(float(tokens - 100), 150.0)
                assert line.debt_tokens <= 150.0
            case "skip":
                assert 0.0 <= line.skip(float(tokens)) <= tokens
            case "put back" if done_with:
                name, prompt_tokens = done_with.pop()
                line.put_back(name, prompt_tokens)
                prompts = {name: prompt_tokens, **prompts}
                assert line.left_tokens >= left + prompt_tokens
                assert line.position_tokens == position - prompt_tokens
                position -= prompt_tokens
            case "withdraw" if prompts:
                line.withdraw(name)
                del prompts[name]
            case "complete" if prompts:
                line.complete(name)
                done_with.append((name, prompts.pop(name)))
        assert list(line) == list(prompts)
        assert line.left_tokens == sum(prompts.values()) - line.done_tokens + line.debt_tokens
        assert 0.0 <= line.done_tokens <= line.head_tokens
        assert line.left_tokens >= 0.0
        assert line.position_tokens >= position
        if event != "put back":
            assert line.attention >= pairs
        pairs = line.attention
        assert prompts or line.left_tokens == line.debt_tokens


@given(st.lists(st.tuples(st.sampled_from(["push", "push", "advance", "pop", "withdraw"]), st.integers(0, 300))))
def test_the_frontier_reaches_a_prompt_when_it_is_done(events: list[tuple[str, int]]) -> None:
    """Where the line said a prompt would be done is where the engine is when it is, whoever left before or after it."""
    line, promised = PrefillLine(), dict[str, float]()
    for number, (event, tokens) in enumerate(events):
        match event:
            case "push":
                promised[str(number)] = line.push(str(number), float(tokens))
            case "advance":
                line.advance(float(tokens))
            case "pop" if promised:
                line.advance(line.left_tokens)
                assert line.frontier_tokens == promised[next(iter(line))]
                del promised[line.pop()]
            case "withdraw" if promised:
                name = list(promised)[tokens % len(promised)]
                line.withdraw(name)
                del promised[name]
        assert all(line.frontier_tokens <= frontier for frontier in promised.values())
