"""The policy of a pool, as it travels in Envoy's gRPC initial metadata (`tidegate-*` keys)."""

from tidegate.policy.key import Key, Scope
from tidegate.policy.keys import KEYS, keys_markdown
from tidegate.policy.parse import CLASSES_MAX, TEXT_BYTES_MAX, VALUE_BYTES_MAX, pairs_of, parse_policy
from tidegate.policy.reader import REPORTS_MAX, TENANT_CHARS_MAX, TEXTS_MAX, PolicyReader, Reading, tenant_name
from tidegate.policy.records import EngineAddress, Policy, PoolPolicy, RequestPolicy
from tidegate.policy.values import POOL_NAMES_RESERVED

__all__ = [
    "CLASSES_MAX",
    "KEYS",
    "POOL_NAMES_RESERVED",
    "REPORTS_MAX",
    "TENANT_CHARS_MAX",
    "TEXTS_MAX",
    "TEXT_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "EngineAddress",
    "Key",
    "Policy",
    "PolicyReader",
    "PoolPolicy",
    "Reading",
    "RequestPolicy",
    "Scope",
    "keys_markdown",
    "pairs_of",
    "parse_policy",
    "tenant_name",
]
