"""How the values of `tidegate-*` keys are read: strictly, so that a typing mistake is an error and never a surprise.

Every reader takes the text as it stands in the metadata and raises ValueError where it is not what the key asks for;
the key that owns the reader words the error.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import TypeVar

from tidegate.admission.dollars import NANO
from tidegate.admission.limits import GateName
from tidegate.policy.page_mapping import sources

T = TypeVar("T")

POOL_NAME_LEN_MAX = 128
POOL_NAMES_RESERVED = frozenset({"overflow"})
"""The pool that takes what no table has room for; nobody else may be called so."""
WEIGHT_MAX = 100
TTFT_BUDGET_MS_MAX = 600_000
CONCURRENCY_MAX = 1_000_000
PER_MINUTE_MAX = 1_000_000_000
DIGITS_MAX = 12
USD_MAX = 1_000_000
GATES_MAX = len(GateName)
MEMORY_FLOOR_DEFAULT_MIB = 4096

_POOL_NAME = re.compile(r"[A-Za-z0-9._|/-]{1,128}", re.ASCII)
_NOT_POOL_NAME = re.compile(r"[^A-Za-z0-9._|/-]", re.ASCII)
_CLASS_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,4}(\.[0-9]{1,2})?", re.ASCII)
_USD = re.compile(r"[0-9]{1,7}(\.[0-9]{1,9})?", re.ASCII)
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTerms:
    """What a class grants; None leaves the route's budget and weight, and sets no limit.

    Attributes:
        ttft_budget_s: time to first token.
        weight: share beside other tenants.
        requests, requests_per_minute, tokens_per_minute: limits of each of its tenants; see admission/contract.py.
    """

    ttft_budget_s: float | None = None
    weight: int | None = None
    requests: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @property
    def has_contract(self) -> bool:
        """Whether it limits its tenants."""
        limits = (self.requests, self.requests_per_minute, self.tokens_per_minute)
        return any(limit is not None for limit in limits)


def whole(text: str, lowest: int, highest: int) -> int:
    """ASCII digits without a sign, from `lowest` to `highest`."""
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and lowest <= int(text) <= highest):
        raise ValueError(text)
    return int(text)


def whole_of(lowest: int, highest: int) -> Callable[[str], int]:
    """A reader of whole numbers in a range."""
    return lambda text: whole(text, lowest, highest)


def seconds_of(lowest_ms: int, highest_ms: int) -> Callable[[str], float]:
    """A reader of whole milliseconds in a range; the result is in seconds."""
    return lambda text: whole(text, lowest_ms, highest_ms) / 1000.0


def nanousd(text: str) -> int:
    """Dollars in plain decimal digits, up to 1,000,000 and to the ninth decimal, as whole nano-dollars: no float."""
    if _USD.fullmatch(text) is None or (amount := Decimal(text)) > USD_MAX:
        raise ValueError(text)
    return int(amount * NANO)


def one_of(values: dict[str, T]) -> Callable[[str], T]:
    """A reader of one word of a few."""

    def read(text: str) -> T:
        if text not in values:
            raise ValueError(text)
        return values[text]

    return read


def decimal_of(lowest: int, highest: int) -> Callable[[str], float]:
    """A reader of plain decimals with at most two places, in a range."""

    def read(text: str) -> float:
        if _DECIMAL.fullmatch(text) is None or not lowest <= float(text) <= highest:
            raise ValueError(text)
        return float(text)

    return read


def gates(text: str) -> tuple[GateName, ...]:
    """`slots,kv,prefill`: names of gates, each once."""
    named = [GateName(part.strip(" ")) for part in text.split(",", GATES_MAX)]
    if len(set(named)) < len(named):
        raise ValueError(text)
    return tuple(
        name for name in GateName if name in named
    )  # in one order, or two texts that mean the same would differ


def mapping(text: str) -> str:
    """A mapping of a metrics page, as it stands."""
    sources(text)
    return text


def pool_name(text: str) -> str:
    """A pool's name as an operator writes it."""
    if _POOL_NAME.fullmatch(text) is None or text in POOL_NAMES_RESERVED:
        raise ValueError(text)
    return text


def pool_name_of_cluster(cluster_name: str) -> str:
    """A usable pool name for any cluster name, the name itself wherever possible.

    Names that are too long, reserved or hold other characters keep their readable part and get a digest, so that two
    clusters never share a pool by accident. No cluster at all is the pool `default`.
    """
    if _POOL_NAME.fullmatch(cluster_name) is not None and cluster_name not in POOL_NAMES_RESERVED:
        return cluster_name
    if not cluster_name:
        return "default"
    digest = blake2b(cluster_name.encode("utf-8", "backslashreplace"), digest_size=_DIGEST_BYTES).hexdigest()
    readable = _NOT_POOL_NAME.sub("_", cluster_name[: POOL_NAME_LEN_MAX - len(digest) - 1])
    return f"{readable}-{digest}"


def class_name(text: str) -> str:
    """A class's name: lower case, because metadata keys are."""
    if _CLASS_NAME.fullmatch(text) is None:
        raise ValueError(text)
    return text


def header_source(text: str) -> str:
    """The header's name in `header:NAME`."""
    kind, _, name = text.partition(":")
    if kind != "header" or _HEADER_NAME.fullmatch(name) is None:
        raise ValueError(text)
    return name


_TERMS_MAX = {
    "ttft-budget-ms": TTFT_BUDGET_MS_MAX,
    "weight": WEIGHT_MAX,
    "concurrency-max": CONCURRENCY_MAX,
    "requests-per-minute-max": PER_MINUTE_MAX,
    "tokens-per-minute-max": PER_MINUTE_MAX,
}


def class_terms(text: str) -> ClassTerms:
    """`ttft-budget-ms=500,weight=4,concurrency-max=8`: at least one of the terms, each once and at least 1."""
    stated: dict[str, int] = {}
    for part in text.split(",", len(_TERMS_MAX)):
        name, equals, value = part.strip(" ").partition("=")
        if not equals or name in stated or name not in _TERMS_MAX:
            raise ValueError(text)
        stated[name] = whole(value, 1, _TERMS_MAX[name])
    budget_ms = stated.get("ttft-budget-ms")
    return ClassTerms(
        ttft_budget_s=None if budget_ms is None else budget_ms / 1000.0,
        weight=stated.get("weight"),
        requests=stated.get("concurrency-max"),
        requests_per_minute=stated.get("requests-per-minute-max"),
        tokens_per_minute=stated.get("tokens-per-minute-max"),
    )
