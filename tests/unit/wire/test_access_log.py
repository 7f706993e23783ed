"""Access-log entries to outcomes."""

import pytest
from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.dollars import Price
from tidegate.admission.outcome import Charge, Ending, Outcome
from tidegate.wire.access_log import outcome_of


def entry(
    *, status: int = 200, details: str = "via_upstream", ours: dict[str, object] | None = None, **usage: object
) -> HTTPAccessLogEntry:
    made = HTTPAccessLogEntry()
    made.response.response_code.value = status
    made.response.response_code_details = details
    spaces = made.common_properties.metadata.filter_metadata
    spaces["admission"].update({"id": "r-1", "pool": "llm", "decision": "admit", "stream": True, **(ours or {})})
    if usage:
        spaces["usage"].update(usage)
    return made


def read(made: HTTPAccessLogEntry) -> Outcome:
    outcome = outcome_of(made)
    assert outcome is not None
    return outcome


def test_a_streamed_answer_gives_tokens_times_and_the_ticket() -> None:
    """Everything that settling needs is in the entry."""
    made = entry(
        ours={"ticket": "sealed", "hold_ms": 250, "replica": "ab", "reserved_tokens": 300},
        prompt_tokens=12,
        completion_tokens=34,
    )
    made.common_properties.custom_tags.update({"ttft_us": "301318", "e2e_us": "1500000", "attempts": "1"})
    made.common_properties.upstream_remote_address.socket_address.address = "10.0.0.7"
    made.common_properties.upstream_remote_address.socket_address.port_value = 8000
    made.response.response_headers["retry-after"] = "7"
    outcome = read(made)
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (12, 34)
    assert (outcome.ttft_s, outcome.e2e_s) == (0.301318, 1.5)
    assert (outcome.ticket, outcome.hold_s, outcome.reserved_tokens) == ("sealed", 0.25, 300)
    assert (outcome.engine, outcome.retry_after_s) == ("10.0.0.7:8000", 7.0)
    assert outcome.ending is Ending.COMPLETE


def test_a_price_travels_in_the_entry() -> None:
    """The prices in force at admission come back as whole numbers; what is out of range is as good as not there."""
    made = entry(
        ours={
            "api": "openai_chat",
            "predicted_cost_nanousd": 5_000_000,
            "predicted_prompt_tokens": 12,
            "price_prompt_nanousd": 150_000,
            "price_completion_nanousd": -1,
            "sequences": 1e300,
        }
    )
    outcome = read(made)
    assert outcome.api == "openai_chat"
    assert outcome.charge == Charge(
        price=Price(prompt_nanousd=150_000), predicted_nanousd=5_000_000, predicted_prompt_tokens=12
    )
    assert read(entry()).charge is None


def test_a_whole_answer_has_no_time_to_first_token() -> None:
    """Its first byte comes with its last, and would teach a wrong TTFT."""
    made = entry(ours={"stream": False})
    made.common_properties.custom_tags["ttft_us"] = "500000"
    assert read(made).ttft_s is None


@pytest.mark.parametrize(
    ("made", "ending"),
    [
        (entry(ours={"decision": "reject"}, status=429, details="tidegate_queue_full"), Ending.REJECTED),
        (entry(ours={"decision": "pending"}, status=0), Ending.CLIENT_CANCELLED),
        (entry(status=200, details="downstream_remote_disconnect"), Ending.CLIENT_CANCELLED),
        (entry(status=200, details="http2.remote_reset"), Ending.CLIENT_CANCELLED),
        (entry(stream_error="1", error_code="503"), Ending.ENGINE_REFUSED),
        (entry(stream_error="1", error_code="500"), Ending.ENGINE_FAILED),
        (entry(stream_error="1", error_type="overloaded_error"), Ending.ENGINE_REFUSED),
        (entry(stream_error="1", error_type="rate_limit_error"), Ending.ENGINE_REFUSED),
        (entry(stream_error="1", error_type="api_error"), Ending.ENGINE_FAILED),
        (entry(status=529), Ending.ENGINE_REFUSED),
        (entry(status=503), Ending.ENGINE_REFUSED),
        (entry(status=429), Ending.ENGINE_REFUSED),
        (entry(status=503, details="upstream_reset_before_response_started{connection_failure}"), Ending.ENGINE_FAILED),
        (entry(status=500), Ending.ENGINE_FAILED),
        (entry(status=404), Ending.BAD_REQUEST),
        (entry(status=200), Ending.COMPLETE),
    ],
)
def test_the_ending_says_whose_doing_it_was(made: HTTPAccessLogEntry, ending: Ending) -> None:
    """A client that left, an engine that refused, an engine that failed and our own refusal are told apart."""
    assert read(made).ending is ending


def test_a_stream_that_was_cut_after_its_headers_is_a_failure() -> None:
    """A 200 whose upstream was reset half-way is not complete."""
    made = entry(status=200)
    made.common_properties.response_flags.upstream_remote_reset = True
    assert read(made).ending is Ending.ENGINE_FAILED


@pytest.mark.parametrize(
    ("api", "ttft_s"), [("openai_chat", 0.3), ("anthropic_messages", 0.3), ("openai_responses", None), ("", 0.3)]
)
def test_the_first_byte_of_responses_is_no_first_token(api: str, ttft_s: float | None) -> None:
    """Its streams open with an event of their own, at once: when the first token came is not known."""
    made = entry(ours={"api": api})
    made.common_properties.custom_tags["ttft_us"] = "300000"
    assert read(made).ttft_s == ttft_s


def test_an_entry_without_our_id_is_no_outcome() -> None:
    """Somebody else's log entries are told apart, and counted by the caller."""
    assert outcome_of(HTTPAccessLogEntry()) is None


scalars = st.none() | st.booleans() | st.floats() | st.text(max_size=20) | st.lists(st.integers(), max_size=2).map(str)
names = st.sampled_from(
    ["id", "hold_ms", "stream", "ticket", "decision", "tenant", "reserved_tokens", "predicted_tokens"]
)


@given(
    st.dictionaries(names, scalars), st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), scalars)
)
def test_no_metadata_makes_reading_fail(ours: dict[str, object], usage: dict[str, object]) -> None:
    """Whatever is in the metadata, an entry is read or left aside, and token counts are believable or absent."""
    outcome = outcome_of(entry(ours=ours, **usage))
    if outcome is not None and outcome.completion_tokens is not None:
        assert 0 <= outcome.completion_tokens <= 100_000_000
