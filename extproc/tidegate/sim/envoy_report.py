"""What Envoy's own stats say about the decisions, from the text of `/stats/prometheus`."""

import re
from collections import Counter

REQUESTS = "envoy_admission_requests"
_SHOWN = (
    REQUESTS,
    "envoy_admission_rejects",
    "envoy_http_ext_proc_streams_started",
    "envoy_http_ext_proc_immediate_responses_sent",
    "envoy_http_ext_proc_failure_mode_allowed",
)
_SERIES = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{.*\})? (?P<value>\d+)$", re.MULTILINE)
_DECISION = re.compile(r'decision="([^"]*)"')

LINES_MAX = 40


def requests_by_decision(page: str) -> Counter[str]:
    """Requests that the service decided on, by decision, all tenants and models together."""
    counts: Counter[str] = Counter()
    for series in _SERIES.finditer(page):
        decision = _DECISION.search(series["labels"] or "")
        if series["name"] == REQUESTS and decision is not None:
            counts[decision[1]] += int(series["value"])
    return counts


def lines_about_decisions(page: str) -> list[str]:
    """The page's own lines on decisions, at most `LINES_MAX`, in the order of `_SHOWN`."""
    found = [series for series in _SERIES.finditer(page) if series["name"] in _SHOWN]
    found.sort(key=lambda series: (_SHOWN.index(series["name"]), series["labels"] or ""))
    return [series[0] for series in found][:LINES_MAX]
