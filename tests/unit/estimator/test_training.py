"""Replaying answers: what is predicted before what is learned, and what is scored."""

from tidegate_estimator import CompletionRequest, CostEstimate, Message, NgramEstimator, Source
from tidegate_estimator.training import Answered, Ticketed, replay


class Recorder:
    """Notes the order of calls; predicts how many answers it has learned."""

    def __init__(self, *, refuses: int = -1) -> None:
        self.calls: list[str] = []
        self.learned: list[tuple[bytes, int, str, int | None]] = []
        self._refuses = refuses

    def estimate(self, request: CompletionRequest) -> CostEstimate:
        self.calls.append(f"estimate {request.model}")
        known = float(len(self.learned))
        return CostEstimate(
            prompt_tokens=1,
            log_mean=0.0,
            log_sigma=1.0,
            p50=known,
            p80=known,
            p90=known + 1,
            p95=known,
            mean=known + 2,
            source=Source.PRIOR,
            ticket=request.model.encode(),
        )

    def learn(
        self, ticket: bytes, completion_tokens: int, finish_reason: str, prompt_tokens: int | None = None
    ) -> bool:
        self.calls.append(f"learn {ticket.decode()}")
        self.learned.append((ticket, completion_tokens, finish_reason, prompt_tokens))
        return completion_tokens != self._refuses


def rows(count: int, finish_reason: str = "stop") -> list[Answered]:
    return [Answered(CompletionRequest(tenant="t", model=str(at)), at + 1, finish_reason, 7) for at in range(count)]


def test_an_answer_is_learned_only_after_the_requests_behind_it_were_predicted() -> None:
    """With two in flight, answer 0 comes after request 2; those left at the end are learned too."""
    recorder = Recorder()
    replay(recorder, rows(4), in_flight=2)
    assert recorder.calls == [
        "estimate 0",
        "estimate 1",
        "estimate 2",
        "learn 0",
        "estimate 3",
        "learn 1",
        "learn 2",
        "learn 3",
    ]
    assert recorder.learned[3] == (b"3", 4, "stop", 7)


def test_what_was_predicted_before_the_answer_is_what_is_kept() -> None:
    """The figures of each row are those of its own estimate, beside the truth."""
    found = replay(Recorder(), rows(4), in_flight=1)
    assert found.tenants == ["t"] * 4
    assert found.observed.tolist() == [1, 2, 3, 4]
    assert found.p50.tolist() == [0, 0, 1, 2]
    assert found.p90.tolist() == [1, 1, 2, 3]
    assert found.mean.tolist() == [2, 2, 3, 4]


def test_none_in_flight_learns_at_once() -> None:
    """With nothing in flight every answer is known before the next request."""
    assert replay(Recorder(), rows(3), in_flight=0).p50.tolist() == [0, 1, 2]


def test_an_aborted_answer_teaches_but_is_not_scored() -> None:
    """Nobody knows how long it would have become."""
    recorder = Recorder()
    found = replay(recorder, rows(3, "abort"))
    assert not found.tenants
    assert len(recorder.learned) == found.learned == 3


def test_a_ticket_is_learned_without_a_prediction() -> None:
    """Only the ticket is left of it: no estimate, no score."""
    recorder = Recorder()
    found = replay(recorder, [Ticketed(b"9", 5, "stop", None)])
    assert recorder.calls == ["learn 9"]
    assert not found.tenants


def test_refusals_are_counted_and_progress_is_told_once_a_row() -> None:
    """An answer that teaches nothing is counted apart; progress counts rows."""
    told: list[None] = []
    found = replay(Recorder(refuses=2), rows(5), on_progress=lambda: told.append(None))
    assert (found.learned, found.refused, len(told)) == (4, 1, 5)


def test_the_real_estimator_gets_better_along_the_replay() -> None:
    """Lengths that depend on the wording are predicted after 300 answers, and were not at first."""
    wordings = {"Write a long essay about the sea": 900, "Yes or no: is water wet?": 3}
    answers = [
        Answered(
            CompletionRequest(
                tenant="t", model="m", messages=(Message(role="user", text=text),), prompt_chars=len(text)
            ),
            tokens,
            "stop",
        )
        for _ in range(150)
        for text, tokens in wordings.items()
    ]
    found = replay(NgramEstimator(), answers)
    off = [abs(p50 - y) / y for p50, y in zip(found.p50, found.observed, strict=True)]
    assert sum(off[-40:]) / 40 < 0.2 < sum(off[:20]) / 20
