"""Every `tidegate-*` key there is, one entry a key."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from tidegate.admission.limits import GATES_DEFAULT, GateName, Mode, Stale
from tidegate.admission.queues.orders import Order
from tidegate.dialects import ErrorFormat
from tidegate.errors import PolicyError
from tidegate.policy.engines import ENGINES_MAX, engines
from tidegate.policy.key import SHOWN_CHARS_MAX, Key, Scope, shown
from tidegate.policy.status_map import RULES, STATUS_MAX, STATUS_MIN, status_map
from tidegate.policy.values import (
    MEMORY_FLOOR_DEFAULT_MIB,
    POOL_NAME_LEN_MAX,
    TTFT_BUDGET_MS_MAX,
    USD_MAX,
    WEIGHT_MAX,
    class_name,
    class_terms,
    decimal_of,
    gates,
    header_source,
    mapping,
    nanousd,
    one_of,
    pool_name,
    seconds_of,
    whole_of,
)

T = TypeVar("T")

PREFIX = "tidegate-"
CLASS_PREFIX = "tidegate-class-"
ESTIMATOR_KINDS = ("ngram", "window")
MAPPED_KIND = "prometheus"
ENGINE_KINDS = (
    "vllm",
    "sglang",
    "llamacpp",
    "triton",
    "trtllm",
    "ray-serve",
    "tgi",
    "kserve",
    "gpu-agent",
    MAPPED_KIND,
)
STALE_MS_MIN = 4000
"""An engine that fails is asked again after 4 s at the latest."""
_HOUR_MS = 3_600_000


def _whole(name: str, scope: Scope, unit: str, bounds: tuple[int, int], default: str, meaning: str) -> Key[int]:
    lowest, highest = bounds
    expected = f"a whole number from {lowest} to {highest}"
    return Key(
        name=name,
        scope=scope,
        unit=unit,
        default=default,
        expected=expected,
        meaning=meaning,
        read=whole_of(lowest, highest),
    )


def _ms(name: str, bounds: tuple[int, int], default: str, meaning: str, *, scope: Scope = Scope.REQUEST) -> Key[float]:
    lowest, highest = bounds
    expected = f"a whole number of milliseconds from {lowest} to {highest}"
    return Key(
        name=name,
        scope=scope,
        unit="ms",
        default=default,
        expected=expected,
        meaning=meaning,
        read=seconds_of(lowest, highest),
    )


def _usd(name: str, meaning: str) -> Key[int]:
    return Key(
        name=name,
        scope=Scope.REQUEST,
        unit="USD",
        default="none",
        expected=f"dollars from 0 to {USD_MAX}, with at most nine decimals",
        meaning=meaning,
        read=nanousd,
    )


def _switch(name: str, scope: Scope, default: str, meaning: str) -> Key[bool]:
    return Key(
        name=name,
        scope=scope,
        default=default,
        expected="`on` or `off`",
        meaning=meaning,
        read=one_of({"on": True, "off": False}),
    )


def _word(name: str, words: Mapping[str, T], default: str, meaning: str, *, scope: Scope = Scope.POOL) -> Key[T]:
    return Key(
        name=name,
        scope=scope,
        default=default,
        expected=f"one of {', '.join(words)}",
        meaning=meaning,
        read=one_of(dict(words)),
    )


def _header(name: str, meaning: str) -> Key[str]:
    return Key(
        name=name,
        scope=Scope.REQUEST,
        default="none",
        expected="`header:NAME` with a header's name in lower case",
        meaning=meaning,
        read=header_source,
    )


POOL = Key(
    name="tidegate-pool",
    scope=Scope.REQUEST,
    default="the Envoy cluster's name",
    expected=f"1 to {POOL_NAME_LEN_MAX} of the characters A-Z a-z 0-9 . _ | / -, and not `overflow`",
    meaning="Pool the request belongs to: engines that share one queue and one capacity.",
    read=pool_name,
)
ENGINES = Key(
    name="tidegate-engines",
    scope=Scope.POOL,
    default="none",
    expected=f"`HOST:PORT[;metrics=URL],...` or `dns:NAME:PORT[;metrics=PATH]`, at most {ENGINES_MAX}, none twice",
    meaning="Serving addresses of the engines, as Envoy sees them, and where their metrics pages are.",
    read=engines,
)
ENGINE = _word(
    "tidegate-engine",
    {kind: kind for kind in ENGINE_KINDS},
    "none",
    "Kind of the engines, which says how to read their metrics pages.",
)
ENGINE_METRICS = Key(
    name="tidegate-engine-metrics",
    scope=Scope.POOL,
    default="none",
    expected='`FIELD=SERIES{LABEL="VALUE"}*FACTOR;...`, as docs/engines.md says',
    meaning=f"Which series of the engines' pages say what, for `tidegate-engine: {MAPPED_KIND}`.",
    read=mapping,
)
STALE = _word(
    "tidegate-stale",
    {stale.value: stale for stale in Stale},
    Stale.DEGRADE.value,
    "What an engine gets whose metrics page has not been read for `tidegate-stale-ms`; docs/engines.md has a table.",
)
STALE_MS = _ms(
    "tidegate-stale-ms",
    (STALE_MS_MIN, _HOUR_MS),
    "5000",
    "Age from which on what an engine has said is stale; a healthy engine is read every second.",
    scope=Scope.POOL,
)
STEER = _switch(
    "tidegate-steer",
    Scope.POOL,
    "off",
    "Tidegate chooses each request's engine among `tidegate-engines`: IP addresses, or what a `dns:` name resolves to. "
    "Off, Envoy chooses.",
)
SLOTS_MAX = _whole(
    "tidegate-slots-max",
    Scope.POOL,
    "sequences",
    (1, 100_000),
    "learned, from 256 on",
    "Sequences one engine runs at once (vLLM: `max_num_seqs`).",
)
KV_TOKENS_MAX = _whole(
    "tidegate-kv-tokens-max",
    Scope.POOL,
    "tokens",
    (1, 1_000_000_000),
    "learned, from 100000 on",
    "Tokens the KV cache of one engine holds.",
)
BATCHED_TOKENS_MAX = _whole(
    "tidegate-batched-tokens-max",
    Scope.POOL,
    "tokens",
    (1, 10_000_000),
    "512",
    "Tokens one engine handles in a step (vLLM: `max_num_batched_tokens`); state it if you can: half as many costs "
    "little, twice as many much.",
)
QUEUE_LEN_MAX = _whole(
    "tidegate-queue-len-max",
    Scope.POOL,
    "requests",
    (0, 10_000),
    "5 s of admissions, from 50 to 1000",
    "Requests that may wait, for each engine; 0 never holds a request.",
)
MODE = _word(
    "tidegate-mode",
    {mode.value: mode for mode in Mode},
    "hybrid",
    "How long a request may wait: its TTFT budget, 300 ms, or 0.7 of the client's timeout.",
)
QUEUE_ORDER = _word(
    "tidegate-queue-order",
    {order.value: order for order in Order},
    Order.COST_DEADLINE.value,
    "Who of one tenant's requests goes next: by deadline plus weighted cost, or by one of them, or by arrival.",
)
QUEUE_ALPHA = Key(
    name="tidegate-queue-alpha",
    scope=Scope.POOL,
    default="3",
    expected="a decimal from 0 to 1000 with at most two places",
    meaning=(
        "Seconds of patience that a second of cost weighs in the order `cost-deadline`: 1 treats large and small "
        "alike, 10 gives most requests in time, at the cost of the large."
    ),
    read=decimal_of(0, 1000),
)
QUEUE_FAIR = _switch(
    "tidegate-queue-fair",
    Scope.POOL,
    "on",
    "Tenants share what the engines do by their weights; off, all wait in one line.",
)
GATES = Key(
    name="tidegate-gates",
    scope=Scope.POOL,
    default=",".join(GATES_DEFAULT),
    expected=f"a list of {', '.join(GateName)}, each at most once",
    meaning="What must be open for a request to go: resources of the engine, and guards for the whole pool.",
    read=gates,
)
CONCURRENCY_MAX = _whole(
    "tidegate-concurrency-max",
    Scope.POOL,
    "requests",
    (1, 1_000_000),
    "none",
    "Requests in flight that the gate `concurrency` allows, in the whole pool.",
)
P99_TARGET_MS = _ms(
    "tidegate-p99-target-ms",
    (1, _HOUR_MS),
    "2000",
    "What the gate `p99-window` keeps the p99 of the engines' own times to: to the first token, or of a whole answer.",
    scope=Scope.POOL,
)
MEMORY_FLOOR_MIB = _whole(
    "tidegate-memory-floor-mib",
    Scope.POOL,
    "MiB",
    (1, 10_000_000),
    str(MEMORY_FLOOR_DEFAULT_MIB),
    "Free GPU memory below which the gate `memory-floor` is shut.",
)
ESTIMATOR = _word(
    "tidegate-estimator",
    {kind: kind for kind in ESTIMATOR_KINDS},
    "ngram",
    "How an answer's length is predicted: from its prompt's words, or as a tenant's running quantiles.",
)
SHADOW = _switch(
    "tidegate-shadow",
    Scope.REQUEST,
    "off",
    "Decide and report, but admit everything at once.",
)
TTFT_BUDGET_MS = _ms(
    "tidegate-ttft-budget-ms", (1, TTFT_BUDGET_MS_MAX), "2000", "Time to first token that a caller accepts."
)
CONVERSATION_BUDGET_MS = _ms(
    "tidegate-conversation-budget-ms",
    (1, TTFT_BUDGET_MS_MAX),
    "none",
    "Takes the place of `tidegate-ttft-budget-ms` where the model has answered before, for a refusal then loses a "
    "conversation; a budget of the class in force wins.",
)
TPOT_TARGET_MS = _ms("tidegate-tpot-target-ms", (1, 60_000), "150", "Time per output token that a caller accepts.")
CLIENT_TIMEOUT_MS = _ms(
    "tidegate-client-timeout-ms",
    (1, _HOUR_MS),
    "from the client's headers, else 60000",
    "When a caller gives up; where its own headers speak too, the shorter counts.",
)
DEADLINE_HEADER = _header(
    "tidegate-deadline-header",
    (
        "Header with the client's timeout in whole milliseconds; it wins over what other headers say, and "
        "`tidegate-client-timeout-ms` still bounds it."
    ),
)
MESSAGE_TIMEOUT_MS = _ms(
    "tidegate-message-timeout-ms",
    (1, _HOUR_MS),
    "200",
    "Repeats the filter's `message_timeout`, which Envoy keeps to itself.",
)
HOLD_MS_MAX = _ms(
    "tidegate-hold-ms-max",
    (0, _HOUR_MS),
    "`tidegate-message-timeout-ms`",
    "The longest a request is held, at most the filter's `max_message_timeout`; a hold ends 50 ms before it.",
)
TENANT = Key(
    name="tidegate-tenant",
    scope=Scope.REQUEST,
    default="none: one tenant for all",
    expected="any text",
    meaning="The tenant itself; may be a command operator (a verified claim, the peer's SAN): it differs by request.",
    read=str,
)
TENANT_FROM = _header(
    "tidegate-tenant-from",
    "Header, set by the mesh, that names the tenant.",
)
CLASS = Key(
    name="tidegate-class",
    scope=Scope.REQUEST,
    default="none",
    expected="the NAME of a class that a `tidegate-class-NAME` key defines: 1 to 32 of the characters a-z 0-9 _ -",
    meaning=(
        "Class of the request; its terms win over `tidegate-ttft-budget-ms`. May be a command operator (a verified "
        "claim); a class that is not defined counts as none."
    ),
    read=class_name,
)
CLASS_FROM = _header(
    "tidegate-class-from",
    (
        "Header in which clients may name a class for a request. They can step down only: of the budgets the longer "
        "and of the weights the smaller holds, and the contract stays that of `tidegate-class`."
    ),
)
CLASS_TERMS = Key(
    name=f"{CLASS_PREFIX}NAME",
    scope=Scope.REQUEST,
    default="none",
    expected=(
        "`ttft-budget-ms=500,weight=4,concurrency-max=8,requests-per-minute-max=600,tokens-per-minute-max=90000`, at "
        f"least one of them: a budget from 1 to {TTFT_BUDGET_MS_MAX} ms, a weight from 1 to {WEIGHT_MAX}, limits from 1"
    ),
    meaning=(
        "Terms of one class, at most 16 of them: TTFT budget, the share of its tenants beside others', and what each "
        "of its tenants may have in the pool at once and ask for in a minute."
    ),
    read=class_terms,
)
ASK_USAGE = _switch(
    "tidegate-ask-usage",
    Scope.REQUEST,
    "off",
    "Ask for the usage of OpenAI streams whose caller does not say (`stream_options`): its tokens are then known, "
    "and the client sees one more chunk, with `choices: []`.",
)
REASON = Key(
    name="tidegate-reason",
    scope=Scope.REQUEST,
    default="full",
    expected="`full` or `code`",
    meaning=(
        "What `x-tidegate-reason` tells a refused client: the rule with its figures, or its code alone, for figures "
        "show how large the pool is. Envoy's metadata has them either way."
    ),
    read=one_of({"full": True, "code": False}),
)
STATUS_MAP = Key(
    name="tidegate-status-map",
    scope=Scope.REQUEST,
    default="none",
    expected=(
        f"`RULE=STATUS,...`, each rule at most once, with a status from {STATUS_MIN} to {STATUS_MAX}; the rules are "
        f"{', '.join(RULES)}"
    ),
    meaning=(
        "HTTP status of refusals by these rules, in place of the usual one; their other headers stay, and so does what "
        "gRPC clients get."
    ),
    read=status_map,
)
ERROR_FORMAT = _word(
    "tidegate-error-format",
    {form.value: form for form in ErrorFormat},
    ErrorFormat.API.value,
    "Body of refusals: that of the API that was asked, or one for all: `openai`, `anthropic`, `kserve` "
    '(`{"error": MESSAGE}`) or `plain` text.',
    scope=Scope.REQUEST,
)
PRICE_ENGINE_HOUR_USD = _usd("tidegate-price-engine-hour-usd", "What the GPUs of one engine cost an hour.")
PRICE_PROMPT_USD = _usd(
    "tidegate-price-prompt-usd",
    "Price of a thousand prompt tokens; with either price of tokens, `tidegate-price-engine-hour-usd` does not count.",
)
PRICE_COMPLETION_USD = _usd("tidegate-price-completion-usd", "Price of a thousand completion tokens.")

_ALL: tuple[Key[Any], ...] = (
    POOL,
    ENGINES,
    ENGINE,
    ENGINE_METRICS,
    STALE,
    STALE_MS,
    STEER,
    SLOTS_MAX,
    KV_TOKENS_MAX,
    BATCHED_TOKENS_MAX,
    QUEUE_LEN_MAX,
    MODE,
    QUEUE_ORDER,
    QUEUE_ALPHA,
    QUEUE_FAIR,
    GATES,
    CONCURRENCY_MAX,
    P99_TARGET_MS,
    MEMORY_FLOOR_MIB,
    ESTIMATOR,
    SHADOW,
    TTFT_BUDGET_MS,
    CONVERSATION_BUDGET_MS,
    TPOT_TARGET_MS,
    CLIENT_TIMEOUT_MS,
    DEADLINE_HEADER,
    MESSAGE_TIMEOUT_MS,
    HOLD_MS_MAX,
    TENANT,
    TENANT_FROM,
    CLASS,
    CLASS_FROM,
    CLASS_TERMS,
    ASK_USAGE,
    REASON,
    STATUS_MAP,
    ERROR_FORMAT,
    PRICE_ENGINE_HOUR_USD,
    PRICE_PROMPT_USD,
    PRICE_COMPLETION_USD,
)
KEYS: dict[str, Key[Any]] = {key.name: key for key in _ALL}
"""Every key by its name, in the order of the documentation."""


def key_of(name: str) -> Key[Any] | None:
    """The key that `name` is, a class's own key included; None where there is no such key."""
    if name.startswith(CLASS_PREFIX) and name != CLASS_FROM.name:
        return CLASS_TERMS
    return KEYS.get(name)


def unknown_key(name: str, value: str) -> PolicyError:
    """The error for a key that does not exist, with the likely meant one."""
    near = get_close_matches(name[:SHOWN_CHARS_MAX], KEYS, n=1)
    return PolicyError(shown(name), shown(value), f"a known key; did you mean {near[0]}?" if near else "a known key")


def keys_markdown() -> str:
    """The table of all keys for the documentation, one row a key, as GitHub's Markdown."""
    head = ("key", "scope", "unit", "default", "value", "meaning")
    rows = [(f"`{key.name}`", key.scope, key.unit, key.default, key.expected, key.meaning) for key in KEYS.values()]
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in (head, ("---",) * len(head), *rows))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
