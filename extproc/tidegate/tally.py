"""Counts of what happened: plain integers on the request path, rendered as Prometheus counters when somebody scrapes.

Names and label sets are fixed here, so that no caller can invent a series. Label values are either closed sets of
ours or names from a bounded `LabelSet`.
"""

from enum import StrEnum
from hashlib import blake2b

_DIGEST_BYTES = 4


class Count(StrEnum):
    """One counter each; the value is its metric name, without the prefix `tidegate_` and the suffix `_total`."""

    DECISIONS = "decisions"
    OUTCOMES = "outcomes"
    PROMPT_TOKENS = "prompt_tokens"
    COMPLETION_TOKENS = "completion_tokens"
    WASTED_TOKENS = "wasted_tokens"
    UNLEARNED = "unlearned"
    USAGE = "usage"
    COST_USD = "cost_usd"
    DEFAULT_COST = "default_cost"
    ESTIMATES = "estimates"
    IGNORED_HEADERS = "ignored_headers"
    POLICY_ERRORS = "policy_errors"
    SCORED_ANSWERS = "scored_answers"
    SCORED_WITHIN_P90 = "scored_within_p90"
    SCORED_PREDICTED_TOKENS = "scored_predicted_tokens"
    SCORED_COMPLETION_TOKENS = "scored_completion_tokens"
    SCORED_P90_PINBALL_TOKENS = "scored_p90_pinball_tokens"
    SCORED_TIMED_ANSWERS = "scored_timed_answers"
    SCORED_TIMED_WITHIN_P90 = "scored_timed_within_p90"
    SCORED_PREDICTED_SECONDS = "scored_predicted_seconds"
    SCORED_SERVICE_SECONDS = "scored_service_seconds"
    SCORED_P90_PINBALL_SECONDS = "scored_p90_pinball_seconds"
    STRAY_OUTCOMES = "stray_outcomes"
    REPEATED_OUTCOMES = "repeated_outcomes"
    STEER_MISSED = "steer_missed"
    STREAMS = "streams"
    INTERNAL_ERRORS = "internal_errors"
    LOG_LINES_DROPPED = "log_lines_dropped"


LABELS: dict[Count, tuple[str, ...]] = {
    Count.DECISIONS: ("pool", "decision", "reason"),
    Count.OUTCOMES: ("pool", "ending"),
    Count.PROMPT_TOKENS: ("pool",),
    Count.COMPLETION_TOKENS: ("pool",),
    Count.WASTED_TOKENS: ("pool",),
    Count.UNLEARNED: ("pool", "why"),
    Count.USAGE: ("pool", "source"),
    Count.COST_USD: ("pool", "tenant", "model"),
    Count.DEFAULT_COST: ("pool", "why"),
    Count.ESTIMATES: ("pool", "source"),
    Count.IGNORED_HEADERS: (),
    Count.POLICY_ERRORS: (),
    Count.SCORED_ANSWERS: ("tenant", "model"),
    Count.SCORED_WITHIN_P90: ("tenant", "model"),
    Count.SCORED_PREDICTED_TOKENS: ("tenant", "model"),
    Count.SCORED_COMPLETION_TOKENS: ("tenant", "model"),
    Count.SCORED_P90_PINBALL_TOKENS: ("tenant", "model"),
    Count.SCORED_TIMED_ANSWERS: ("tenant", "model"),
    Count.SCORED_TIMED_WITHIN_P90: ("tenant", "model"),
    Count.SCORED_PREDICTED_SECONDS: ("tenant", "model"),
    Count.SCORED_SERVICE_SECONDS: ("tenant", "model"),
    Count.SCORED_P90_PINBALL_SECONDS: ("tenant", "model"),
    Count.STRAY_OUTCOMES: (),
    Count.REPEATED_OUTCOMES: (),
    Count.STEER_MISSED: ("pool",),
    Count.STREAMS: ("end",),
    Count.INTERNAL_ERRORS: ("where",),
    Count.LOG_LINES_DROPPED: (),
}

HELP: dict[Count, str] = {
    Count.DECISIONS: "Verdicts by decision (admit, delay, reject, pass) and the rule behind them.",
    Count.OUTCOMES: "Finished requests, as Envoy's access log reported them, by how they ended.",
    Count.PROMPT_TOKENS: "Prompt tokens that engines reported.",
    Count.COMPLETION_TOKENS: "Completion tokens that engines reported.",
    Count.WASTED_TOKENS: "Completion tokens that engines reported for answers whose client had left.",
    Count.UNLEARNED: "Finished requests that taught the estimator nothing, and why.",
    Count.USAGE: "Complete answers whose tokens are known: reported by the engine, or inferred from bytes.",
    Count.COST_USD: "Dollars that finished requests cost, where their policy states a price.",
    Count.DEFAULT_COST: "Requests booked at a default cost, and why.",
    Count.ESTIMATES: "Lengths predicted, by what they rest on; `wider`: a tenant's own predictions have drifted off.",
    Count.IGNORED_HEADERS: "Unusable timeout, retry count, idempotency key or class in a client's headers: ignored.",
    Count.POLICY_ERRORS: "Distinct policy texts that were refused; their requests run under the last good policy.",
    Count.SCORED_ANSWERS: "Answers whose predicted length was compared with the reported one; the unit of the others.",
    Count.SCORED_WITHIN_P90: "Scored answers no longer than their predicted p90; nine of ten should be.",
    Count.SCORED_PREDICTED_TOKENS: "Completion tokens predicted (the mean) for the scored answers.",
    Count.SCORED_COMPLETION_TOKENS: "Completion tokens of the scored answers, as reported.",
    Count.SCORED_P90_PINBALL_TOKENS: "Pinball loss at p90 of the scored answers, summed.",
    Count.SCORED_TIMED_ANSWERS: "Answers without tokens, of engines without queueing, compared with the prediction.",
    Count.SCORED_TIMED_WITHIN_P90: "Scored answers without tokens within their predicted p90; nine of ten should be.",
    Count.SCORED_PREDICTED_SECONDS: "Service seconds predicted (the mean) for the scored answers without tokens.",
    Count.SCORED_SERVICE_SECONDS: "Seconds that the scored answers without tokens took.",
    Count.SCORED_P90_PINBALL_SECONDS: "Pinball loss at p90 of the scored answers without tokens, summed.",
    Count.STRAY_OUTCOMES: "Access-log entries that carried no usable id.",
    Count.REPEATED_OUTCOMES: "Access-log entries for an id that was already settled.",
    Count.STEER_MISSED: "Requests that Envoy sent to another engine than it was told to.",
    Count.STREAMS: "ext_proc streams that ended, and how.",
    Count.INTERNAL_ERRORS: "Faults of this program, caught; the request concerned was let through.",
    Count.LOG_LINES_DROPPED: "Log lines dropped because the writer could not keep up.",
}


class Tally:
    """Counters by name and label values."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Count, dict[tuple[str, ...], float]] = {count: {} for count in Count}

    def add(self, count: Count, *labels: str, by: float = 1) -> None:
        """Add to one series; `labels` are the values of LABELS[count], in that order."""
        assert len(labels) == len(LABELS[count]), (count, labels)
        series = self._counts[count]
        series[labels] = series.get(labels, 0) + by

    def get(self, count: Count, *labels: str) -> float:
        """Value of one series, 0 where it has never been counted."""
        return self._counts[count].get(labels, 0)

    def forget_pool(self, pool: str) -> None:
        """Drop every series of a pool that is gone, so that pools that come and go leave nothing behind."""
        for count, series in self._counts.items():
            if "pool" in LABELS[count]:
                at = LABELS[count].index("pool")
                for labels in [labels for labels in series if labels[at] == pool]:
                    del series[labels]

    def series(self, count: Count) -> dict[tuple[str, ...], float]:
        """All series of one counter."""
        return dict(self._counts[count])


class LabelSet:
    """Names from outside as label values: cleaned, and never more than `limit` of them.

    A name that is too long, has other characters than a label should, or is `other` itself keeps its readable part and
    gets a digest.

    Anybody can send a model or tenant name that does not exist. So a name that no engine has ever answered for
    (`prove`) may only take one of a few places; the rest show as `other`, and a flood of inventions cannot push real
    names out.
    """

    OTHER = "other"

    def __init__(self, *, limit: int = 64, unproved_limit: int = 16, chars_max: int = 64) -> None:
        self._limit = limit
        self._unproved_left = unproved_limit
        self._chars_max = chars_max
        self._labels: dict[str, str] = {}

    def label(self, name: str) -> str:
        """The label for a name: itself, cleaned; `other` where there is no place for it; empty for an empty name."""
        known = self._labels.get(name)
        if known is not None:
            return known
        if not name:
            return ""
        if self._unproved_left <= 0 or len(self._labels) >= self._limit:
            return self.OTHER
        self._unproved_left -= 1
        return self._enter(name)

    def prove(self, name: str) -> None:
        """An engine answered for this name: it deserves a label of its own while there is room."""
        if name and name not in self._labels and len(self._labels) < self._limit:
            self._enter(name)

    def _enter(self, name: str) -> str:
        label = "".join(c if c.isascii() and (c.isalnum() or c in "._:/-@") else "_" for c in name[: self._chars_max])
        if label != name or label == self.OTHER:  # two names must not come to one label
            digest = blake2b(name.encode("utf-8", "backslashreplace"), digest_size=_DIGEST_BYTES).hexdigest()
            label = f"{label[: self._chars_max - len(digest) - 1]}-{digest}"
        self._labels[name] = label
        return label
