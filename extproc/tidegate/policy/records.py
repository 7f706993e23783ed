"""What a set of `tidegate-*` keys says, once it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.admission.contract import Contract
from tidegate.admission.decision import Rule
from tidegate.admission.dollars import Price
from tidegate.admission.limits import Limits
from tidegate.dialects import ErrorFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """One engine: its serving address as Envoy sees it, and where its metrics page is, if it was named.

    Attributes:
        address: `HOST:PORT`, an IPv6 host in brackets and in its shortest form.
        metrics: URL of the metrics page, or its path where `dns` is set; empty where it was not named.
        dns: the address is a name that stands for all addresses it resolves to.
    """

    address: str
    metrics: str = ""
    dns: bool = False

    @property
    def literal(self) -> bool:
        """It is an IP address: the only kind that Envoy can be told to send a request to."""
        host = self.address.rpartition(":")[0]
        return not self.dns and (host.startswith("[") or host.replace(".", "").isdigit())


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """Pool-scoped settings: capacity, engines, queue, mode. One record a pool at any moment.

    `engine` is the kind of the engines, empty where nobody asks them; `engine_metrics` the mapping of their pages, for
    the one kind that needs it.

    Two records are equal when they mean the same, however their keys were written: `text` (sorted `key=value` lines of
    the pool-scoped keys alone) takes no part in the comparison.
    """

    name: str
    limits: Limits = field(default_factory=Limits)
    engines: tuple[EngineAddress, ...] = ()
    engine: str = ""
    engine_metrics: str | None = None
    estimator: str = "ngram"
    steer: bool = False
    text: str = field(default="", compare=False)

    @property
    def steered(self) -> tuple[str, ...]:
        """Addresses of the engines that tidegate chooses among; none where Envoy does, or before DNS has named them."""
        found = () if any(engine.dns for engine in self.engines) else self.engines
        return tuple(engine.address for engine in found) if self.steer else ()

    @property
    def seeks_engines(self) -> bool:
        """Engines have to be found, or asked how they are."""
        return any(engine.dns for engine in self.engines) or bool(self.engines and self.engine)

    @property
    def engine_count(self) -> int:
        """Engines the pool's capacity is the sum of: those named, a DNS name being one, and one where none is named."""
        return max(1, len(self.engines))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """Request-scoped settings: budgets, timeouts, tenant source, shadow; a route may override each.

    Attributes:
        ttft_budget_s: time to first token that a caller accepts.
        conversation_budget_s: the same for a request that goes on with a conversation; None is `ttft_budget_s`.
        tpot_target_s: time per output token that a caller accepts.
        client_timeout_s: when a caller gives up, in its own words or these, whichever is shorter; None is 60 s.
        deadline_header: header whose milliseconds win over what the client's other headers say, or empty.
        message_timeout_s: repeats the filter's message_timeout.
        hold_s_max: the longest hold; where above message_timeout_s, a hold is announced by override_message_timeout.
        tenant_header: header that names the tenant, or empty.
        weight: share of the tenant beside the others that wait.
        shadow: decide and report, admit all.
        tenant_class: name of the class in force, or empty.
        contract: what each tenant of the class may ask of the pool, or None.
        class_header: header in which clients may name a class, or empty.
        steps_down: what holds instead for a request that names this class; none of them is better than this policy.
        ask_usage: ask for the usage of streams whose caller does not say.
        shows_figures: refusals show their callers what was measured and allowed, beside the rule.
        statuses: HTTP statuses of refusals by rule, where they are not the usual ones.
        error_format: in whose words refusals are.
        price: what the request is charged, or None where nothing is.
        text: sorted `key=value` lines of the request-scoped keys alone; takes no part in comparisons.
    """

    ttft_budget_s: float = 2.0
    conversation_budget_s: float | None = None
    tpot_target_s: float = 0.15
    client_timeout_s: float | None = None
    deadline_header: str = ""
    message_timeout_s: float = 0.2
    hold_s_max: float = 0.2
    tenant_header: str = ""
    weight: int = 1
    shadow: bool = False
    tenant_class: str = ""
    contract: Contract | None = None
    class_header: str = ""
    steps_down: Mapping[str, "RequestPolicy"] = field(default_factory=dict, compare=False)
    ask_usage: bool = False
    shows_figures: bool = True
    statuses: Mapping[Rule, int] = field(default_factory=dict)
    error_format: ErrorFormat = ErrorFormat.API
    price: Price | None = None
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything one distinct text of keys says; `text` is its canonical form (sorted `key=value` lines)."""

    pool: PoolPolicy
    request: RequestPolicy = field(default_factory=RequestPolicy)
    text: str = ""
