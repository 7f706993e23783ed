"""What Envoy is told, in its own terms: verdicts to replies, with the metadata that stats and the access log read.

Every reply that decides something sets `decision` and `reason`; every verdict sets `hold_ms`. The metadata carries
all that settling needs later, so that any replica can do it from the access-log entry alone.
"""

from random import Random

from msgspec import Struct

from tidegate.admission.decision import Admit, Reason, Reject, Rule
from tidegate.admission.dollars import Price
from tidegate.admission.service_book import TRUST_MIN
from tidegate.dialects import ErrorBody, error_body, with_usage_asked
from tidegate.intake import Opening, Weighed
from tidegate.seal import Seal
from tidegate.wire.events import BodyMode, Continue, Phase, Refuse, Scalar

RETRY_AFTER_S_MAX = 30.0
ENGINE_HEADER = "x-gateway-destination-endpoint"
"""Tells Envoy's `override_host` policy where to send a request; clients' own are removed before (see envoy.yaml)."""
_STRETCH_MAX, _STRETCH_MAX_NO_ENGINE = 1.5, 3.0

_MESSAGES: dict[Rule, str] = {
    Rule.QUEUE_FULL: "The model is busy and its queue is full. Please retry after the time given.",
    Rule.WAIT_TOO_LONG: "The model is busy: the answer could not begin in time. Please retry after the time given.",
    Rule.EXPIRED: "The request waited in the queue for as long as it may. Please retry after the time given.",
    Rule.NO_ENGINE: "No engine is available for this model. Please retry later.",
    Rule.SHUTTING_DOWN: "The admission service is shutting down. Please retry.",
    Rule.REQUEST_TOO_LARGE: "The request is larger than the model can ever hold; retrying cannot help.",
    Rule.TENANT_CONCURRENCY: "You have as many requests in progress as your contract allows. Please retry later.",
    Rule.TENANT_REQUESTS: "Your requests of this minute are used up. Please retry after the time given.",
    Rule.TENANT_TOKENS: "Your tokens of this minute are used up. Please retry after the time given.",
    Rule.SUPERSEDED: "The same request has been sent again, and that one is served instead.",
}
_GRPC_STATUS = {429: 8, 503: 14, 413: 3, 409: 10}
"""RESOURCE_EXHAUSTED, UNAVAILABLE, INVALID_ARGUMENT, ABORTED, by the HTTP status that goes with a rule.

Not by a status of the policy's own: what gRPC clients do about a status is fixed, whatever a site's HTTP clients like.
"""


class Ruling(Struct, frozen=True, gc=False):
    """Why a request goes to the engine: what stats, the log and the access log say of it.

    Attributes:
        decision: `admit` or `delay`.
        code: of the rule; of a delayed request, the one that made it wait; `shadow_...` names what would have been.
        reason: with the figures.
        waited_s, kv_tokens: time held and KV tokens booked.
        engine: address of the engine that it is to go to; empty where Envoy chooses.
        trust: what its time will be worth, where it has no tokens (see service_book.py).
    """

    decision: str
    code: str
    reason: Reason
    waited_s: float = 0.0
    kv_tokens: int = 0
    engine: str = ""
    trust: float = 1.0

    @classmethod
    def of(cls, admit: Admit, *, waited_for: Reason | None, why_default: str) -> "Ruling":
        """The ruling behind an admit; `waited_for` is what kept it waiting, if anything did."""
        if waited_for is not None:
            code = waited_for.rule.value
            return cls("delay", code, waited_for, admit.waited_s, admit.kv_tokens, admit.engine, admit.trust)
        code = why_default or admit.reason.rule.value
        return cls("admit", code, admit.reason, 0.0, admit.kv_tokens, admit.engine, admit.trust)

    @classmethod
    def shadow(cls, reason: Reason) -> "Ruling":
        """The ruling on a request that is admitted only because its policy is a shadow."""
        return cls("admit", f"shadow_{reason.rule}", reason, trust=TRUST_MIN)


class Answers:
    """Words the replies of one replica. The random generator only spreads retries; the seal closes tickets."""

    def __init__(self, replica: str, random: Random, seal: Seal) -> None:
        self._replica = replica
        self._random = random
        self._seal = seal

    def pending(self, opening: Opening) -> Continue:
        """Answer to the headers of a request whose body is to come."""
        metadata = self._identity(opening)
        metadata["decision"] = "pending"
        return Continue(Phase.REQUEST_HEADERS, metadata)

    def passed(self, opening: Opening) -> Continue:
        """Answer to the headers of a request that is none of our business."""
        metadata = self._identity(opening)
        metadata |= {"decision": "pass", "reason": opening.kind.value, "hold_ms": 0, "model": ""}
        return Continue(Phase.REQUEST_HEADERS, metadata, BodyMode.LET_GO)

    def booked(self, opening: Opening, weighed: Weighed, ruling: Ruling) -> Continue:
        """Answer to the headers of a request whose body need not be read; its stream is to stay open all the same."""
        metadata = self._identity(opening) | _of_ruling(weighed, ruling)
        headers = _steering(opening, ruling, metadata)
        if opening.policy.price is not None:
            metadata |= _predicted_cost(opening, weighed, opening.policy.price)
        return Continue(Phase.REQUEST_HEADERS, metadata, BodyMode.SKIP_BODY, headers=headers)

    def admitted(self, opening: Opening, weighed: Weighed, ruling: Ruling) -> Continue:
        """Answer to the body of a request that goes to the engine now."""
        metadata = _of_ruling(weighed, ruling)
        headers = _steering(opening, ruling, metadata)
        estimate = weighed.estimate
        if estimate is not None:
            metadata["predicted_tokens"] = round(estimate.mean)
            metadata["predicted_p90_tokens"] = round(estimate.p90)
            metadata["log_mean"] = round(estimate.log_mean, 4)
            metadata["log_sigma"] = round(estimate.log_sigma, 4)
            metadata["ticket"] = self._seal.close(estimate.ticket, opening.id)
            if opening.dialect is not None:
                metadata["api"] = opening.dialect.name
        service = weighed.service
        if service is not None:
            metadata["predicted_service_ms"] = round(service.mean_s * 1000.0, 1)
            metadata["ticket"] = self._seal.close(service.ticket(trust=ruling.trust), opening.id)
            if opening.dialect is not None:
                metadata["api"] = opening.dialect.name
        if weighed.model_label != weighed.model:
            metadata["model_name"] = weighed.model
        if opening.policy.price is not None:
            metadata |= _predicted_cost(opening, weighed, opening.policy.price)
        body = with_usage_asked(weighed.asks_usage) if weighed.asks_usage else None
        return Continue(Phase.REQUEST_BODY, metadata, body=body, headers=headers)

    def refused(self, opening: Opening, weighed: Weighed | None, verdict: Reject) -> Refuse:
        """The answer that the client gets from us; it carries the whole metadata, also when it answers the headers."""
        reason = verdict.reason
        shown = str(reason) if opening.policy.shows_figures else reason.rule.value
        headers = {"x-tidegate-reason": shown}
        status = _status(opening, verdict)
        said = _said(opening, reason.rule, status)
        if not opening.is_grpc:  # Envoy sets the type that gRPC clients insist on
            headers["content-type"] = said.content_type
        headers.update(self._retry_headers(reason, verdict.retry_after_s))
        metadata = self._identity(opening)
        metadata["model"] = "" if weighed is None else weighed.model_label
        metadata["decision"] = "reject"
        metadata["reason"] = reason.rule.value
        metadata["measured"] = reason.measured
        metadata["threshold"] = reason.threshold
        metadata["hold_ms"] = round(verdict.waited_s * 1000.0)
        if weighed is not None:
            metadata["stream"] = weighed.work.stream
            if weighed.estimate is not None:
                metadata["predicted_tokens"] = round(weighed.estimate.mean)
        return Refuse(
            status=status,
            headers=headers,
            body=said.body,
            details=f"tidegate_{reason.rule}",
            metadata=metadata,
            grpc_status=_GRPC_STATUS[verdict.status] if opening.is_grpc else None,
        )

    def _identity(self, opening: Opening) -> dict[str, Scalar]:
        metadata: dict[str, Scalar] = {
            "id": opening.id,
            "replica": self._replica,
            "pool": opening.pool.name,
            "tenant": opening.tenant_label,
        }
        if opening.tenant_label != opening.tenant:  # the tag is bounded, the truth is needed to settle
            metadata["tenant_name"] = opening.tenant
        return metadata

    def _retry_headers(self, reason: Reason, retry_after_s: float | None) -> dict[str, str]:
        if retry_after_s is None:
            return {"x-should-retry": "false"}
        # Clients add no jitter of their own to a delay that a server names, so the spread has to come from here.
        # It is added and never taken off: an engine may have asked for this delay at the least.
        stretch_max = _STRETCH_MAX_NO_ENGINE if reason.rule is Rule.NO_ENGINE else _STRETCH_MAX
        delay_s = min(retry_after_s * self._random.uniform(1.0, stretch_max), RETRY_AFTER_S_MAX)
        whole_s = int(delay_s + self._random.random())  # rounded at random, or the jitter would be lost
        return {"retry-after": str(max(1, whole_s)), "retry-after-ms": str(max(1, round(delay_s * 1000.0)))}


def _status(opening: Opening, verdict: Reject) -> int:
    """The HTTP status of a refusal: the policy's own where it names one. gRPC clients see 200 in any case."""
    return opening.policy.statuses.get(verdict.reason.rule, verdict.status)


def _said(opening: Opening, rule: Rule, status: int) -> ErrorBody:
    """What the client reads; of a gRPC client's answer Envoy makes the message of the status."""
    message = _MESSAGES[rule]
    if opening.is_grpc:
        return ErrorBody("", message.encode())
    return error_body(opening.policy.error_format, opening.dialect, status=status, code=rule.value, message=message)


def _of_ruling(weighed: Weighed, ruling: Ruling) -> dict[str, Scalar]:
    return {
        "decision": ruling.decision,
        "reason": ruling.code,
        "measured": ruling.reason.measured,
        "threshold": ruling.reason.threshold,
        "hold_ms": round(ruling.waited_s * 1000.0),
        "model": weighed.model_label,
        "stream": weighed.work.stream,
        "reserved_tokens": ruling.kv_tokens,
    }


def _steering(opening: Opening, ruling: Ruling, metadata: dict[str, Scalar]) -> dict[str, str] | None:
    """The header that steers, noted in the metadata; none where Envoy chooses, also under a shadow policy: it changes
    nothing for its requests.
    """
    if not ruling.engine or opening.policy.shadow:
        return None
    metadata["engine"] = ruling.engine
    return {ENGINE_HEADER: ruling.engine}


def _predicted_cost(opening: Opening, weighed: Weighed, price: Price) -> dict[str, Scalar]:
    """What it should cost, and the prices: whoever settles the request later, on any replica, charges by the same."""
    work, estimate = weighed.work, weighed.estimate
    fields: dict[str, Scalar] = {"predicted_prompt_tokens": work.prompt_tokens}
    if price.by_tokens:
        completion_tokens = opening.pool.controller.price(work).completion_tokens if estimate is None else estimate.mean
        fields["predicted_cost_nanousd"] = price.of_tokens(work.prompt_tokens, completion_tokens)
        fields["price_prompt_nanousd"] = price.prompt_nanousd or 0
        fields["price_completion_nanousd"] = price.completion_nanousd or 0
    else:
        fields["predicted_cost_nanousd"] = price.of_time(opening.pool.controller.price(work).bottleneck_s)
        fields["price_engine_hour_nanousd"] = price.engine_hour_nanousd or 0
        fields["sequences"] = work.sequences
    return fields
