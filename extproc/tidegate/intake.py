"""From what Envoy sends of a request to a piece of work: whose it is, which pool's, its cost, how long it may wait.

Nothing a client sends can make this fail: an unknown API, a body that is not JSON, a model nobody serves run at a
stated default cost and are counted; the engine gives the client its own answer.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, structs

from tidegate.admission.attempt import NO_SIGNS, Signs, client_of, signs_of
from tidegate.admission.deadline import client_timeout
from tidegate.admission.prompt_demand import NO_COMPLETION, prompt_demand
from tidegate.admission.work import Work
from tidegate.dialects import CostClass, Dialect, InferenceRequest, dialect_for, passes
from tidegate.errors import MalformedBody
from tidegate.policy import RequestPolicy, tenant_name
from tidegate.pools import Pool, Pools
from tidegate.tally import Count, LabelSet, Tally
from tidegate_estimator import CostEstimate
from tidegate_estimator.service_time import ServiceEstimate

HOLD_MARGIN_S = 0.05
"""Every hold ends this long before Envoy's own timer, for the answer has to reach Envoy in time."""

CLIENT_TIMEOUT_DEFAULT_S = 60.0
DEFAULT_PROMPT_TOKENS = 256
TENANTS_KNOWN_MAX = 4096

_GRPC_TYPE = "application/grpc"
_CLUSTER_ATTRIBUTE = "xds.cluster_name"


class Kind(StrEnum):
    """What the headers say about a request."""

    BODYLESS = "bodyless"  # GET and the like: passes, nothing is booked
    FREE = "free"  # a token count or an engine's own page: passes as well, whatever its body
    UNKNOWN_API = "unknown_api"  # a body we cannot read: booked at a default cost, never held or refused
    INFERENCE = "inference"


class Opening(Struct, frozen=True, gc=False):
    """A request whose headers have come."""

    id: str
    pool: Pool
    policy: RequestPolicy
    tenant: str
    tenant_known: bool
    tenant_label: str
    kind: Kind
    dialect: Dialect | None
    client_timeout_s: float
    hold_s_max: float
    is_grpc: bool
    client: str
    signs: Signs


class Weighed(Struct, frozen=True, gc=False):
    """A request whose cost is known, or known to be unknowable (`why_default`).

    `estimate` is of its tokens, `service` of its time where it has none.
    `asks_usage` is the body of a stream whose usage is to be asked for; empty otherwise, for nothing else needs it.
    """

    work: Work
    estimate: CostEstimate | None
    model: str
    model_label: str
    why_default: str = ""
    asks_usage: bytes = b""
    service: ServiceEstimate | None = None


class Intake:
    """Reads requests on behalf of all pools."""

    def __init__(self, pools: Pools, tally: Tally, *, replica: str) -> None:
        self._pools = pools
        self._tally = tally
        self._serial = itertools.count(1)
        self.replica = replica
        self._known: OrderedDict[str, None] = OrderedDict()  # tenants that an engine has answered, latest last
        self.tenants = LabelSet()
        self.models = LabelSet()

    def open(
        self,
        headers: Mapping[str, str],
        *,
        end_of_stream: bool,
        attributes: Mapping[str, str],
        metadata: Iterable[tuple[str, str | bytes]],
        now_s: float,
    ) -> Opening:
        """Read the headers of a request and the policy that came with its stream."""
        pool, policy, tenant = self._pools.find(metadata, attributes.get(_CLUSTER_ATTRIBUTE, ""), now_s)
        policy = self._stepped_down(policy, headers)
        known = True
        if tenant is None:
            tenant = tenant_name(headers.get(policy.tenant_header, "")) if policy.tenant_header else ""
            known = self._is_known(tenant)
        path = headers.get(":path", "")
        dialect = None if end_of_stream else dialect_for(headers.get(":method", ""), path)
        if dialect is not None:
            kind = Kind.INFERENCE
        elif end_of_stream:
            kind = Kind.BODYLESS
        else:
            kind = Kind.FREE if passes(path) else Kind.UNKNOWN_API
        return Opening(
            id=f"{self.replica}-{next(self._serial):x}",
            pool=pool,
            policy=policy,
            tenant=tenant,
            tenant_known=known,
            tenant_label=self.tenants.label(tenant),
            kind=kind,
            dialect=dialect,
            client_timeout_s=self._client_timeout_s(headers, policy),
            hold_s_max=max(0.0, policy.hold_s_max - HOLD_MARGIN_S),
            is_grpc=headers.get("content-type", "").startswith(_GRPC_TYPE),
            client=client_of(headers),
            signs=self._signs(headers),
        )

    def prove(self, tenant: str, model: str) -> None:
        """An engine has answered for these names, so they may be labels of their own."""
        self.tenants.prove(tenant)
        self.models.prove(model)
        if tenant:
            self._known[tenant] = None
            self._known.move_to_end(tenant)
            if len(self._known) > TENANTS_KNOWN_MAX:
                self._known.popitem(last=False)

    def least(self, opening: Opening) -> Iterator[Work]:
        """The smallest work this request could turn out to be, one token in, one token out, with each budget it may
        have: a longer one makes it more patient, a shorter one gives it an earlier place.
        """
        work = self._work(opening, prompt_tokens=1, completion_tokens_max=1, log_mean=0.0, log_sigma=0.1)
        yield work
        budget_s = opening.policy.conversation_budget_s
        if budget_s is not None:
            yield structs.replace(work, ttft_budget_s=budget_s)

    def default(self, opening: Opening, why: str) -> Weighed:
        """The request at the default cost: booked, never held or refused."""
        self._tally.add(Count.DEFAULT_COST, opening.pool.name, why)
        work = self._work(opening, prompt_tokens=DEFAULT_PROMPT_TOKENS, refusable=False)
        return Weighed(work, None, "", "", why_default=why)

    def weigh(self, opening: Opening, body: bytes) -> Weighed:
        """Read the body and estimate its cost."""
        assert opening.dialect is not None
        try:
            request = opening.dialect.parse_request(body, tenant=opening.tenant)
        except MalformedBody:
            return self.default(opening, "malformed_body")
        if request.cost_class is CostClass.TIMED:
            return self._weigh_timed(opening, request, body)
        if request.cost_class is CostClass.PROMPT:
            return self._weigh_prompt(opening, request, body)
        completion = request.completion
        estimate = opening.pool.estimator.estimate(completion)
        self._tally.add(Count.ESTIMATES, opening.pool.name, estimate.source.value)
        cap = completion.max_tokens
        work = self._work(
            opening,
            prompt_tokens=estimate.prompt_tokens,
            completion_tokens_max=None if cap is None else cap * completion.sequences,
            log_mean=estimate.log_mean,
            log_sigma=estimate.log_sigma,
            sequences=completion.sequences,
            stream=request.stream,
        )
        work = _with_attempt(opening, work, body)
        budget_s = opening.policy.conversation_budget_s
        if budget_s is not None and request.is_conversation:
            work = structs.replace(work, ttft_budget_s=budget_s)
        return Weighed(
            work,
            estimate,
            completion.model,
            self.models.label(completion.model),
            asks_usage=body if request.usage_unasked and opening.policy.ask_usage else b"",
        )

    def _weigh_prompt(self, opening: Opening, request: InferenceRequest, body: bytes) -> Weighed:
        """A request that ends with its prompt: only the prompt is estimated, and of completion there is none."""
        completion = request.completion
        estimate = opening.pool.estimator.estimate(completion)
        self._tally.add(Count.ESTIMATES, opening.pool.name, estimate.source.value)
        estimate = structs.replace(estimate, **NO_COMPLETION)
        demand = prompt_demand(estimate.prompt_tokens, completion.sequences, opening.pool.policy.limits)
        work = self._work(
            opening,
            prompt_tokens=demand.prompt_tokens,
            completion_tokens_max=1,
            log_mean=estimate.log_mean,
            log_sigma=estimate.log_sigma,
            sequences=demand.sequences,
            stream=False,
        )
        work = _with_attempt(opening, work, body)
        return Weighed(work, estimate, completion.model, self.models.label(completion.model))

    def _weigh_timed(self, opening: Opening, request: InferenceRequest, body: bytes) -> Weighed:
        """A request without tokens: its cost is the time that its model takes for an input of its size."""
        model = request.completion.model
        service = opening.pool.service_times.estimate(model, request.input_size)
        work = self._work(opening, prompt_tokens=0, stream=False)
        work = _with_attempt(opening, structs.replace(work, service_s=service.mean_s), body)
        return Weighed(work, None, model, self.models.label(model), service=service)

    def _work(
        self,
        opening: Opening,
        *,
        prompt_tokens: int,
        completion_tokens_max: int | None = None,
        log_mean: float = 5.0,
        log_sigma: float = 0.9,
        sequences: int = 1,
        stream: bool = True,
        refusable: bool = True,
    ) -> Work:
        policy = opening.policy
        return Work(
            id=opening.id,
            tenant=opening.tenant,
            known=opening.tenant_known,
            prompt_tokens=prompt_tokens,
            completion_tokens_max=completion_tokens_max,
            log_mean=log_mean,
            log_sigma=log_sigma,
            sequences=sequences,
            stream=stream,
            ttft_budget_s=policy.ttft_budget_s,
            tpot_target_s=policy.tpot_target_s,
            client_timeout_s=opening.client_timeout_s,
            hold_s_max=opening.hold_s_max,
            weight=policy.weight,
            contract=policy.contract,
            refusable=refusable,
        )

    def _is_known(self, tenant: str) -> bool:
        """Whether an engine has answered this tenant before, so that its name is not one invented for this request."""
        if tenant not in self._known:
            return not tenant
        self._known.move_to_end(tenant)
        return True

    def _stepped_down(self, policy: RequestPolicy, headers: Mapping[str, str]) -> RequestPolicy:
        """The policy of the class that the request asks for, where it may and does."""
        asked = headers.get(policy.class_header) if policy.class_header else None
        if asked is None:
            return policy
        lower = policy.steps_down.get(asked)
        if lower is None:
            self._tally.add(Count.IGNORED_HEADERS)
            return policy
        return lower

    def _signs(self, headers: Mapping[str, str]) -> Signs:
        signs = signs_of(headers)
        if signs.ignored:
            self._tally.add(Count.IGNORED_HEADERS, by=signs.ignored)
        return signs

    def _client_timeout_s(self, headers: Mapping[str, str], policy: RequestPolicy) -> float:
        stated = client_timeout(headers, deadline_header=policy.deadline_header)
        if stated.ignored:
            self._tally.add(Count.IGNORED_HEADERS, by=stated.ignored)
        stated_s = [seconds for seconds in (stated.timeout_s, policy.client_timeout_s) if seconds is not None]
        # SDKs send their own generous default (600 s): where the policy knows better, the shorter one holds
        return min(stated_s, default=CLIENT_TIMEOUT_DEFAULT_S)


def _with_attempt(opening: Opening, work: Work, body: bytes) -> Work:
    """The work with what the headers and the body say of earlier tries of it."""
    if opening.signs is NO_SIGNS:
        return work
    attempt = opening.signs.attempt(body, tenant=opening.tenant, client=opening.client)
    return structs.replace(work, attempt=attempt)
