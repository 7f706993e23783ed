"""Prices: whole nano-dollars, by tokens or by the engine's hour."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.cost import finished, price
from tidegate.admission.dollars import NANOUSD_MAX, Price
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.limits import Limits
from tidegate.admission.work import Work

amounts = st.none() | st.integers(0, NANOUSD_MAX)


def test_tokens_are_priced_by_the_thousand() -> None:
    """0.15 and 0.60 dollars a million: 1000 and 500 tokens cost 0.00045 dollars."""
    price = Price(prompt_nanousd=150_000, completion_nanousd=600_000)
    assert price.by_tokens
    assert price.of_tokens(1000, 500) == 450_000
    assert Price(completion_nanousd=600_000).of_tokens(1000, 500) == 300_000


def test_time_is_priced_by_the_hour() -> None:
    """Nine seconds of an engine at four dollars an hour cost one cent."""
    price = Price(engine_hour_nanousd=4_000_000_000)
    assert not price.by_tokens
    assert price.of_time(9.0) == 10_000_000


def test_a_finished_request_is_priced_by_the_same_formula() -> None:
    """What was predicted exactly costs exactly what was predicted; 0 tokens count as one."""
    book = EngineBook(Limits(slots=4, kv_tokens=5000, batched_tokens=2000), now_s=0.0)
    for tokens, sequences in ((0, 1), (1, 1), (700, 1), (700, 4)):
        predicted = Work(
            id="w", prompt_tokens=900, completion_tokens_max=tokens, log_mean=12.0, log_sigma=0.0, sequences=sequences
        )
        spent = finished(prompt_tokens=900, completion_tokens=tokens, sequences=sequences)
        spent_s, predicted_s = (
            price(work, book, log_mean=work.log_mean, log_sigma=work.log_sigma, tau_s=0.03).bottleneck_s
            for work in (spent, predicted)
        )
        assert spent_s == predicted_s > 0.0


@given(amounts, amounts, amounts, st.floats(0.0), st.floats(0.0))
def test_any_figures_cost_a_whole_bounded_amount(
    hour: int | None, prompt: int | None, completion: int | None, some: float, more: float
) -> None:
    """Nonsensical figures end at the bound, never at an error or below zero."""
    price = Price(engine_hour_nanousd=hour, prompt_nanousd=prompt, completion_nanousd=completion)
    for nanousd in (price.of_tokens(some, more), price.of_time(some)):
        assert isinstance(nanousd, int)
        assert 0 <= nanousd <= NANOUSD_MAX
