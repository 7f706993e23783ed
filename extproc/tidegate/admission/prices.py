"""What requests cost, by what has been learned of answers: how long they are beside their estimates, and how fast.

    length   the estimate, its bias and spread set right (see calibration.py)
    pace     time a token takes (see pace.py)

The engine's part of a price (its step time, its capacity) is its book's.
"""

from collections.abc import Mapping

from tidegate.admission.allowance import Allowance
from tidegate.admission.arrays import Floats
from tidegate.admission.calibration import Calibration
from tidegate.admission.cost import Cost, Pricing, finished, price
from tidegate.admission.outcome import Outcome
from tidegate.admission.pace import Pace
from tidegate.admission.records import as_record
from tidegate.admission.work import Work

_WATCH_S = 1.0
_LESSONS_PER_S = 100.0


class Prices:
    """The prices of one pool."""

    __slots__ = ("_calibration", "_lessons", "_pace", "_watched_s")

    def __init__(self, now_s: float) -> None:
        self._calibration = Calibration()
        self._pace = Pace()
        self._watched_s = now_s
        self._lessons = Allowance(_LESSONS_PER_S, now_s)

    @property
    def tau_s(self) -> float:
        """Seconds a token takes."""
        return self._pace.tau_s

    def of(self, work: Work, engine: Pricing) -> Cost:
        """What `work` would ask of this engine now; changes nothing."""
        log_mean, log_sigma = work.log_mean, work.log_sigma
        if log_sigma > 0.0:  # else its length is known
            log_mean, log_sigma = self._calibration.calibrate(log_mean, log_sigma)
        return price(work, engine, log_mean=log_mean, log_sigma=log_sigma, tau_s=self._pace.tau_s)

    def true(self, work: Work, outcome: Outcome, tokens: int, engine: Pricing) -> Cost:
        """What `work` really took up, at the prices of now."""
        prompt_tokens = work.prompt_tokens if outcome.prompt_tokens is None else outcome.prompt_tokens
        ended = finished(prompt_tokens=prompt_tokens, completion_tokens=tokens, sequences=work.sequences)
        return self.of(ended, engine)

    def learn_pace(self, outcome: Outcome) -> None:
        """Take in the pace of an answer of any replica."""
        self._pace.learn(outcome)

    def learn_length(self, work: Work, tokens: int, now_s: float) -> None:
        """Take in the length of a complete answer; one that reached its cap would have gone on, one that was known to
        begin with (embeddings have none) says nothing.

        At most a hundred a second: the calibration remembers two hundred, and more would only cost verdicts time.
        """
        if work.log_sigma <= 0.0 or not self._lessons.take(now_s):
            return
        cap = work.completion_tokens_max
        self._calibration.learn(work.log_mean, work.log_sigma, tokens, cut=cap is not None and tokens >= cap)

    def watch_is_due(self, now_s: float) -> bool:
        """Whether it is time to look at the answers that run."""
        return now_s >= self._watched_s + _WATCH_S

    def watch(self, estimates: tuple[Floats, Floats, Floats], now_s: float) -> None:
        """Look at the answers that run: estimates before calibration, and tokens that came."""
        self._watched_s = now_s
        self._calibration.watch(*estimates)

    def dump(self) -> dict[str, object]:
        """What was learned, for a state file."""
        return {"tau_s": self._pace.tau_s, "calibration": self._calibration.dump()}

    def restore(self, record: Mapping[str, object]) -> None:
        """Take over what an earlier process learned; ValueError where it is damaged, an empty record says nothing."""
        if "tau_s" in record:
            self._pace.restore(record["tau_s"])
        if "calibration" in record:
            self._calibration.restore(as_record(record["calibration"]))
