"""`tidegate-status-map`: the HTTP status of a refusal by its rule, where a site wants another than the usual one.

Only statuses of errors are taken: a refusal that reads as an answer, or sends its client elsewhere, would hide itself.
"""

from collections.abc import Mapping

from tidegate.admission.decision import STATUS_BY_RULE, Rule
from tidegate.policy.values import whole

STATUS_MIN, STATUS_MAX = 400, 599
RULES = tuple(STATUS_BY_RULE)
"""The rules that refuse, so that they have a status at all."""


def status_map(text: str) -> Mapping[Rule, int]:
    """`queue_full=503,expired=408`: at least one rule that refuses, each once, and the status it gets."""
    statuses: dict[Rule, int] = {}
    for part in text.split(",", len(RULES)):
        name, _, status = part.strip(" ").partition("=")
        rule = Rule(name)
        if rule in statuses or rule not in STATUS_BY_RULE:
            raise ValueError(text)
        statuses[rule] = whole(status, STATUS_MIN, STATUS_MAX)
    return statuses
