"""One request as the core sees it: what it will cost and how long it may wait."""

from msgspec import Struct

from tidegate.admission.attempt import Attempt
from tidegate.admission.contract import Contract

STRANGERS = "\0"
"""The lane of tenants that nobody knows: no header can hold this name."""


class Work(Struct, frozen=True, kw_only=True, gc=False):
    """A request to be admitted, delayed or rejected.

    Attributes:
        id: unique in this process; ties the stream's end and the access-log entry to the booking.
        tenant: whose share of the engines it takes.
        known: its tenant is more than a name that somebody sent; see `lane`.
        prompt_tokens: tokens to prefill.
        completion_tokens_max: the most completion tokens the caller allows, all sequences together, or None.
        log_mean, log_sigma: completion tokens, all sequences together, as a log-normal.
        sequences: sequence slots it takes in the engine.
        stream: the answer is streamed, so that its first token counts; else the whole answer does.
        ttft_budget_s: time to first token the caller accepts.
        tpot_target_s: time per output token the caller accepts.
        client_timeout_s: when the caller gives up.
        hold_s_max: the longest the gateway can keep it waiting, margins already taken off.
        weight: share of its tenant beside the others that wait.
        contract: what its tenant may ask of the pool, or None.
        service_s: of a request without tokens, how long an engine should work on it; None for all others.
        attempt: which try of which request it is, or None where nobody could tell.
        refusable: False books it whatever the load: an unknown API, a shadow policy.
    """

    id: str
    tenant: str = ""
    known: bool = True
    prompt_tokens: int = 0
    completion_tokens_max: int | None = None
    log_mean: float = 5.0
    log_sigma: float = 0.9
    sequences: int = 1
    stream: bool = True
    ttft_budget_s: float = 2.0
    tpot_target_s: float = 0.15
    client_timeout_s: float = 60.0
    hold_s_max: float = 0.15
    weight: int = 1
    contract: Contract | None = None
    service_s: float | None = None
    attempt: Attempt | None = None
    refusable: bool = True

    @property
    def lane(self) -> str:
        """Whose turn it takes: tenants that nobody knows share one, for names cost their inventor nothing."""
        return self.tenant if self.known else STRANGERS
