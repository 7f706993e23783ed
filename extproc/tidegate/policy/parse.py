"""From the pairs in Envoy's gRPC initial metadata to a policy; pure, and strict: one bad key fails the whole text."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from tidegate.admission.contract import Contract
from tidegate.admission.dollars import Price
from tidegate.admission.limits import GateName, Limits, Mode
from tidegate.errors import PolicyError
from tidegate.policy import keys
from tidegate.policy.key import Key, Scope, shown
from tidegate.policy.keys import key_of, unknown_key
from tidegate.policy.records import EngineAddress, Policy, PoolPolicy, RequestPolicy
from tidegate.policy.values import (
    MEMORY_FLOOR_DEFAULT_MIB,
    ClassTerms,
    class_name,
    mapping,
    pool_name_of_cluster,
)

T = TypeVar("T")

VALUE_BYTES_MAX = 1024
TEXT_BYTES_MAX = 4096
"""All keys of a stream and their values together. gRPC refuses streams from 8 KiB on, and Envoy then admits unseen."""
CLASSES_MAX = 16


def parse_policy(pairs: Iterable[tuple[str, str]], *, default_pool: str) -> Policy:
    """Read the `tidegate-*` keys among `pairs`; other keys are none of ours and pass by.

    Args:
        pairs: names and values in the order of the metadata; of a repeated key the last one counts.
        default_pool: pool where no `tidegate-pool` is given, usually the Envoy cluster's name; any text will do.

    Raises:
        PolicyError: an unknown key, a value that is not what its key asks for, or more than 1 KiB in a value or 4 KiB
            in all. The value of `tidegate-tenant` differs by request and is not looked at.
    """
    ours = [(name, value) for name, value in pairs if name.startswith(keys.PREFIX) and name != keys.TENANT.name]
    _check_size(ours)
    stated = dict(ours)
    for name, value in stated.items():
        if key_of(name) is None:
            raise unknown_key(name, value)
    name = _read(stated, keys.POOL, "") or pool_name_of_cluster(default_pool)
    return Policy(pool=_pool(stated, name), request=_request(stated), text=_text(stated))


def pairs_of(text: str) -> list[tuple[str, str]]:
    """The pairs that a canonical text of a policy or of a part of one was made of."""
    return [(name, value) for name, _, value in (line.partition("=") for line in text.splitlines())]


def pool_name_stated(pairs: Iterable[tuple[str, str]], *, default_pool: str) -> str:
    """The pool's name alone, whatever else is wrong: a bad `tidegate-pool` falls back on the default."""
    try:
        return _read(dict(pairs), keys.POOL, "") or pool_name_of_cluster(default_pool)
    except PolicyError:
        return pool_name_of_cluster(default_pool)


def size_bytes(text: str) -> int:
    """Bytes of the text on the wire."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "backslashreplace"))


def _check_size(pairs: list[tuple[str, str]]) -> None:
    total = 0
    for name, value in pairs:
        if size_bytes(value) > VALUE_BYTES_MAX:
            raise PolicyError(shown(name), shown(value), f"at most {VALUE_BYTES_MAX} bytes in a value")
        total += size_bytes(name) + size_bytes(value)
    if total > TEXT_BYTES_MAX:
        name, value = pairs[-1]
        expected = f"at most {TEXT_BYTES_MAX} bytes in all tidegate-* keys and values together, not {total}"
        raise PolicyError(shown(name), shown(value), expected)


def _read(stated: dict[str, str], key: Key[T], default: T) -> T:
    text = stated.get(key.name)
    return default if text is None else key.value(text)


def _read_stated(stated: dict[str, str], key: Key[T]) -> T | None:
    text = stated.get(key.name)
    return None if text is None else key.value(text)


def _pool(stated: dict[str, str], name: str) -> PoolPolicy:
    usual = Limits()
    limits = Limits(
        slots=_read_stated(stated, keys.SLOTS_MAX),
        kv_tokens=_read_stated(stated, keys.KV_TOKENS_MAX),
        batched_tokens=_read(stated, keys.BATCHED_TOKENS_MAX, usual.batched_tokens),
        queue_len=_read_stated(stated, keys.QUEUE_LEN_MAX),
        mode=_read(stated, keys.MODE, Mode.HYBRID),
        order=_read(stated, keys.QUEUE_ORDER, usual.order),
        alpha=_read(stated, keys.QUEUE_ALPHA, usual.alpha),
        fair=_read(stated, keys.QUEUE_FAIR, usual.fair),
        gates=_read(stated, keys.GATES, usual.gates),
        concurrency=_read_stated(stated, keys.CONCURRENCY_MAX),
        p99_target_s=_read(stated, keys.P99_TARGET_MS, usual.p99_target_s),
        memory_floor_mib=_memory_floor_mib(stated),
        stale=_read(stated, keys.STALE, usual.stale),
        stale_after_s=_read(stated, keys.STALE_MS, usual.stale_after_s),
    )
    _check_guards(limits, stated)
    engines = _read(stated, keys.ENGINES, ())
    return PoolPolicy(
        name=name,
        limits=limits,
        engines=engines,
        engine=_read(stated, keys.ENGINE, ""),
        engine_metrics=_engine_metrics(stated),
        estimator=_read(stated, keys.ESTIMATOR, "ngram"),
        steer=_steer(stated, engines),
        text=_text(_of_scope(stated, Scope.POOL)),
    )


def _memory_floor_mib(stated: dict[str, str]) -> int | None:
    """The default floor holds only where the gate is in force."""
    floor_mib = _read_stated(stated, keys.MEMORY_FLOOR_MIB)
    if floor_mib is None and GateName.MEMORY_FLOOR in _read(stated, keys.GATES, ()):
        return MEMORY_FLOOR_DEFAULT_MIB
    return floor_mib


def _engine_metrics(stated: dict[str, str]) -> str | None:
    """The mapping of the one kind of engine that needs one, and has no other way to be read."""
    kind, text = _read(stated, keys.ENGINE, ""), stated.get(keys.ENGINE_METRICS.name)
    if text is None:
        if kind == keys.MAPPED_KIND:
            raise PolicyError(keys.ENGINE.name, kind, f"`{keys.ENGINE_METRICS.name}` beside it")
        return None
    if kind != keys.MAPPED_KIND:
        expected = f"`{keys.ENGINE.name}: {keys.MAPPED_KIND}` beside it"
        raise PolicyError(keys.ENGINE_METRICS.name, shown(text), expected)
    try:
        return mapping(text)
    except ValueError as error:
        expected = f"{keys.ENGINE_METRICS.expected} ({error})"
        raise PolicyError(keys.ENGINE_METRICS.name, shown(text), expected) from None


def _steer(stated: dict[str, str], engines: tuple[EngineAddress, ...]) -> bool:
    """Envoy can be told an endpoint's IP address alone: names would only ever miss, but for those that we resolve."""
    steer = _read(stated, keys.STEER, False)
    names = [engine.address for engine in engines if not engine.literal and not engine.dns]
    if steer and (names or not engines):
        found = f", not {shown(names[0])}" if names else ""
        expected = f"`off`, or `{keys.ENGINES.name}` beside it with IP addresses or a `dns:` name{found}"
        raise PolicyError(keys.STEER.name, shown(stated[keys.STEER.name]), expected)
    return steer


def _check_guards(limits: Limits, stated: dict[str, str]) -> None:
    """A guard that is named needs its figure, and a figure its guard: else one stands open and nobody knows."""
    for name, key, has_default in (
        (GateName.CONCURRENCY, keys.CONCURRENCY_MAX, False),
        (GateName.P99_WINDOW, keys.P99_TARGET_MS, True),
        (GateName.MEMORY_FLOOR, keys.MEMORY_FLOOR_MIB, True),
    ):
        if name in limits.gates and key.name not in stated and not has_default:
            text = stated.get(keys.GATES.name, "")
            raise PolicyError(keys.GATES.name, shown(text), f"`{key.name}` beside the gate {name}")
        if name not in limits.gates and key.name in stated:
            raise PolicyError(key.name, shown(stated[key.name]), f"the gate {name} in `{keys.GATES.name}`")


def _request(stated: dict[str, str]) -> RequestPolicy:
    usual = RequestPolicy()
    defined = _classes(stated)
    tenant_class = _class_in_force(stated, defined)
    terms = defined.get(tenant_class, ClassTerms())
    message_timeout_s = _read(stated, keys.MESSAGE_TIMEOUT_MS, usual.message_timeout_s)
    ttft_budget_s = _read(stated, keys.TTFT_BUDGET_MS, usual.ttft_budget_s)
    conversation_budget_s = _read_stated(stated, keys.CONVERSATION_BUDGET_MS)
    client_timeout_s = _read(stated, keys.CLIENT_TIMEOUT_MS, 0.0)
    policy = RequestPolicy(
        ttft_budget_s=ttft_budget_s if terms.ttft_budget_s is None else terms.ttft_budget_s,
        conversation_budget_s=conversation_budget_s if terms.ttft_budget_s is None else None,
        tpot_target_s=_read(stated, keys.TPOT_TARGET_MS, usual.tpot_target_s),
        client_timeout_s=client_timeout_s or None,
        deadline_header=_read(stated, keys.DEADLINE_HEADER, ""),
        message_timeout_s=message_timeout_s,
        hold_s_max=_read(stated, keys.HOLD_MS_MAX, message_timeout_s),
        tenant_header=_read(stated, keys.TENANT_FROM, ""),
        weight=usual.weight if terms.weight is None else terms.weight,
        shadow=_read(stated, keys.SHADOW, False),
        tenant_class=tenant_class,
        contract=_contract(tenant_class, terms),
        class_header=_read(stated, keys.CLASS_FROM, ""),
        ask_usage=_read(stated, keys.ASK_USAGE, False),
        shows_figures=_read(stated, keys.REASON, True),
        statuses=_read(stated, keys.STATUS_MAP, {}),
        error_format=_read(stated, keys.ERROR_FORMAT, usual.error_format),
        price=_price(stated),
        text=_text(_of_scope(stated, Scope.REQUEST)),
    )
    _check_steps(policy, stated, defined)
    return replace(policy, steps_down=_steps_down(policy, defined)) if policy.class_header else policy


def _check_steps(policy: RequestPolicy, stated: dict[str, str], defined: Mapping[str, ClassTerms]) -> None:
    """A header that names classes needs classes."""
    if policy.class_header and not defined:
        expected = f"a class, defined by `{keys.CLASS_TERMS.name}`, beside it"
        raise PolicyError(keys.CLASS_FROM.name, shown(stated[keys.CLASS_FROM.name]), expected)


def _steps_down(policy: RequestPolicy, defined: Mapping[str, ClassTerms]) -> dict[str, RequestPolicy]:
    """What each class comes to where a client asks for it: never more than `policy` grants already."""
    return {
        name: replace(
            policy,
            tenant_class=name,
            ttft_budget_s=max(policy.ttft_budget_s, terms.ttft_budget_s or 0.0),
            conversation_budget_s=None if terms.ttft_budget_s is not None else policy.conversation_budget_s,
            weight=min(policy.weight, policy.weight if terms.weight is None else terms.weight),
            contract=policy.contract if policy.tenant_class else _contract(name, terms),
        )
        for name, terms in defined.items()
    }


def _contract(name: str, terms: ClassTerms) -> Contract | None:
    if not terms.has_contract:
        return None
    return Contract(
        name=name,
        requests=terms.requests,
        requests_per_minute=terms.requests_per_minute,
        tokens_per_minute=terms.tokens_per_minute,
    )


def _price(stated: dict[str, str]) -> Price | None:
    price = Price(
        engine_hour_nanousd=_read_stated(stated, keys.PRICE_ENGINE_HOUR_USD),
        prompt_nanousd=_read_stated(stated, keys.PRICE_PROMPT_USD),
        completion_nanousd=_read_stated(stated, keys.PRICE_COMPLETION_USD),
    )
    return None if price == Price() else price


def _classes(stated: dict[str, str]) -> dict[str, ClassTerms]:
    """Every class defined, whether in force or not, so that a mistake shows at once."""
    defined: dict[str, ClassTerms] = {}
    for key, value in stated.items():
        if key_of(key) is not keys.CLASS_TERMS:
            continue
        defined[_class_defined_by(key, value)] = keys.CLASS_TERMS.value(value, name=key)
        if len(defined) > CLASSES_MAX:
            raise PolicyError(shown(key), shown(value), f"at most {CLASSES_MAX} classes")
    return defined


def _class_in_force(stated: dict[str, str], defined: Mapping[str, ClassTerms]) -> str:
    """The class the request is in, or none."""
    name = _read(stated, keys.CLASS, "")
    if name and name not in defined:
        expected = f"the name of a defined class ({', '.join(defined) or 'there is none'})"
        raise PolicyError(keys.CLASS.name, shown(name), expected)
    return name


def _class_defined_by(key: str, value: str) -> str:
    try:
        return class_name(key.removeprefix(keys.CLASS_PREFIX))
    except ValueError:
        expected = f"a key `{keys.CLASS_TERMS.name}` with 1 to 32 of the characters a-z 0-9 _ - as NAME"
        raise PolicyError(shown(key), shown(value), expected) from None


def _of_scope(stated: dict[str, str], scope: Scope) -> dict[str, str]:
    return {name: value for name, value in stated.items() if (key := key_of(name)) is not None and key.scope is scope}


def _text(stated: dict[str, str]) -> str:
    return "\n".join(sorted(f"{name}={value}" for name, value in stated.items()))
