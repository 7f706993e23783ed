"""From the metadata of a stream to its policy, fast: one look-up in a table of the texts already read.

Almost all streams of a route carry the same text, so that parsing it once is enough, bad texts included. A text is
known by its exact pairs and the cluster's name; the tenant's value, which differs by request, is kept out of it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TypeAlias

from msgspec import Struct, structs

from tidegate.errors import PolicyError
from tidegate.policy.keys import CLASS, PREFIX, TENANT
from tidegate.policy.parse import TEXT_BYTES_MAX, parse_policy, pool_name_stated
from tidegate.policy.records import Policy
from tidegate.policy.values import POOL_NAME_LEN_MAX, pool_name_of_cluster

TEXTS_MAX = 1024
TENANT_CHARS_MAX = 128
REPORTS_MAX = 64
"""Errors reported between two calls of `allow_reports`: a value that differs by request must not flood a log."""

_PREFIX_LEN = len(PREFIX)
_TextKey: TypeAlias = tuple[str, object]


class Reading(Struct, frozen=True, kw_only=True, gc=False):
    """What one stream's metadata says.

    Attributes:
        pool: name of the pool, known even where the text is bad.
        policy: None where the text is bad; of one whose class is unknown, what holds without a class.
        error: what is wrong with the text, or None.
        tenant_value: of `tidegate-tenant`, or None where the mesh names nobody.
    """

    pool: str
    policy: Policy | None
    error: PolicyError | None = None
    tenant_value: str | None = None


class PolicyReader:
    """Reads policies and remembers the last 1024 distinct texts.

    Args:
        on_policy_error: told of each bad text once, with the pool it was meant for.

    Attributes:
        errors_total: streams whose text was bad.
        texts_read_total: texts parsed; a steady rise means that a value differs by request.
    """

    def __init__(self, on_policy_error: Callable[[PolicyError, str], None]) -> None:
        self._on_policy_error = on_policy_error
        self._readings: OrderedDict[_TextKey, Reading] = OrderedDict()
        self._reports_left = REPORTS_MAX
        self.errors_total = 0
        self.texts_read_total = 0

    def read(self, metadata: Iterable[tuple[str, str | bytes]], cluster_name: str) -> Reading:
        """The policy of one stream; never raises, whatever the metadata holds.

        Args:
            metadata: pairs as gRPC hands them over; values are bytes where the key ends in `-bin`.
            cluster_name: Envoy cluster of the route, empty where it is not known.
        """
        tenant: str | bytes | None = None
        pairs: list[tuple[str, str | bytes]] = []
        size = 0
        for name, value in metadata:
            if name[:_PREFIX_LEN] != PREFIX:
                continue
            if name == TENANT.name:
                tenant = value
            else:
                pairs.append((name, value))
                size += len(name) + len(value)
        if len(cluster_name) > POOL_NAME_LEN_MAX:
            cluster_name = pool_name_of_cluster(cluster_name)
        # What is over the limit anyway is known by its digest, so that the table stays small.
        known_by: object = tuple(pairs) if size <= TEXT_BYTES_MAX else blake2b(repr(pairs).encode()).digest()
        reading = self._look_up((cluster_name, known_by), pairs)
        if reading.error is not None:
            self.errors_total += 1
        if not tenant:
            return reading
        return Reading(
            pool=reading.pool, policy=reading.policy, error=reading.error, tenant_value=tenant_name(_as_text(tenant))
        )

    def allow_reports(self) -> None:
        """Grant another 64 reports; call it once a minute."""
        self._reports_left = REPORTS_MAX

    def _look_up(self, text_key: _TextKey, pairs: list[tuple[str, str | bytes]]) -> Reading:
        reading = self._readings.get(text_key)
        if reading is not None:
            self._readings.move_to_end(text_key)
            return reading
        reading = _parse([(name, _as_text(value)) for name, value in pairs], text_key[0])
        self.texts_read_total += 1
        self._readings[text_key] = reading
        if len(self._readings) > TEXTS_MAX:
            self._readings.popitem(last=False)
        if reading.error is not None and self._reports_left > 0:
            self._reports_left -= 1
            self._on_policy_error(reading.error, reading.pool)
        return reading


def _parse(pairs: list[tuple[str, str]], cluster_name: str) -> Reading:
    try:
        policy = parse_policy(pairs, default_pool=cluster_name)
    except PolicyError as error:
        kept = PolicyError(error.key, error.value, error.expected)  # with a traceback it would keep frames alive
        classless = [pair for pair in pairs if pair[0] != CLASS.name]
        if error.key == CLASS.name and len(classless) < len(pairs):
            # a claim names it, most likely: the last good policy could be that of another class, and a better one
            return structs.replace(_parse(classless, cluster_name), error=kept)
        return Reading(pool=pool_name_stated(pairs, default_pool=cluster_name), policy=None, error=kept)
    return Reading(pool=policy.pool.name, policy=policy)


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def tenant_name(text: str) -> str:
    """A tenant's name as the service knows it: itself, or where it is too long a digest of all of it."""
    if len(text) <= TENANT_CHARS_MAX:
        return text
    return f"tenant-{blake2b(text.encode('utf-8', 'backslashreplace'), digest_size=16).hexdigest()}"
