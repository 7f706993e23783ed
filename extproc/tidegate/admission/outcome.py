"""How a request ended, as Envoy measured it."""

from enum import StrEnum

from msgspec import Struct

from tidegate.admission.dollars import Price


class Ending(StrEnum):
    """How the exchange ended; a metric label and a log field."""

    COMPLETE = "complete"  # the whole answer reached the client
    CLIENT_CANCELLED = "client_cancelled"  # the client left, while held or while the answer came
    REJECTED = "rejected"  # our own refusal
    ENGINE_REFUSED = "engine_refused"  # the engine said 429 or 503, or a 200 stream carried an error event
    ENGINE_FAILED = "engine_failed"  # any other 5xx, reset, connect failure or timeout on the way to the engine
    BAD_REQUEST = "bad_request"  # the engine said another 4xx


class Charge(Struct, frozen=True, kw_only=True, gc=False):
    """The price that a request was admitted at, and what was then known of its size.

    Attributes:
        price: in force when it was admitted.
        predicted_nanousd: what it was expected to cost.
        predicted_prompt_tokens: prompt tokens expected; they stand in where the engine does not say.
        sequences: completions generated at once.
        timed: it has no tokens, and costs what it takes of an engine's time.
    """

    price: Price
    predicted_nanousd: int = 0
    predicted_prompt_tokens: int = 0
    sequences: int = 1
    timed: bool = False


class Outcome(Struct, frozen=True, kw_only=True, gc=False):
    """One finished request, read from its access-log entry alone, so that any replica can take it in.

    Attributes:
        id: of the work; `replica` names the process that decided.
        decision: admit, delay, reject, pass, or pending: the client left while held.
        reason: code of the rule behind the decision.
        ending: how it ended; `status` is the HTTP status the client saw, 0 where it saw none.
        stream: the answer was streamed.
        prompt_tokens, completion_tokens: as the engine counted them, or None where it did not say.
        ttft_s: from sending the request to the engine to the first byte of its answer's body; None unless streamed.
        e2e_s: from sending the request to the engine to the last byte to the client; None where it never got there.
        duration_s: from the request's first byte to the end of the exchange.
        hold_s: how long it was kept waiting.
        engine: address that served it, or empty.
        steered: address that it was to go to, or empty where Envoy chose.
        attempts: tries at an upstream; 0 where nothing went upstream.
        retry_after_s: the engine's own Retry-After, or None.
        response_bytes: bytes of the answer's body.
        ticket: the estimator's, sealed, as text; empty where there is none.
        predicted_tokens, predicted_p90_tokens: completion tokens predicted, their mean and p90; 0 where none were.
        reserved_tokens: KV tokens booked.
        details: Envoy's RESPONSE_CODE_DETAILS.
        api: name of the dialect that read the request; empty where none could.
        charge: what settling its cost needs; None where nothing is charged.
    """

    id: str
    replica: str = ""
    pool: str = ""
    tenant: str = ""
    model: str = ""
    decision: str = ""
    reason: str = ""
    ending: Ending = Ending.COMPLETE
    status: int = 0
    stream: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    duration_s: float = 0.0
    hold_s: float = 0.0
    engine: str = ""
    steered: str = ""
    attempts: int = 0
    retry_after_s: float | None = None
    response_bytes: int = 0
    ticket: str = ""
    predicted_tokens: int = 0
    predicted_p90_tokens: int = 0
    reserved_tokens: int = 0
    details: str = ""
    api: str = ""
    charge: Charge | None = None

    @property
    def steered_wrong(self) -> bool:
        """Envoy sent it elsewhere than it was told to."""
        return bool(self.steered) and bool(self.engine) and self.engine != self.steered
