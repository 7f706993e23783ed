"""What tells that a request is another try of one that came before.

Two signs, in this order:

    idempotency-key           the client's own name for its request: whatever comes later under it is another try
    x-stainless-retry-count   how many tries came before, as the SDKs of OpenAI and Anthropic count; another try has the
                              same body, the same client (x-forwarded-for, which Envoy completes) and a higher count

Both hold within one tenant alone. Where nobody says whose a request is, a key holds within one client: strangers may
well choose the same. Bodies are compared by Python's own keyed hash and their length.
"""

import re
from collections.abc import Hashable, Mapping

from msgspec import Struct

KEY_CHARS_MAX = 256
_KEY_HEADER, _COUNT_HEADER, _CLIENT_HEADER = "idempotency-key", "x-stainless-retry-count", "x-forwarded-for"
_COUNT = re.compile(r"[0-9]{1,4}", re.ASCII)


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """One try of a request.

    Attributes:
        same: equal for all tries of one request, and for nothing else: it holds whose request it is.
        number: how many tries came before this one, by its client's own count; None where `same` is the client's own
            name for the request.
        client: whose try it is, as far as that is known of requests that are only counted.
    """

    same: Hashable
    number: int | None = None
    client: Hashable = None

    def follows(self, number: int | None) -> bool:
        """Whether this can be a later try than that one; two first tries are two requests that look alike."""
        return self.number is None or number is None or self.number > number

    @property
    def may_follow(self) -> bool:
        """Whether there can have been a try before this one."""
        return self.number is None or self.number > 0


class Signs(Struct, frozen=True, kw_only=True, gc=False):
    """What a request's headers say of its tries.

    Attributes:
        key: the client's own name for the request, or empty.
        number: its count, or None where it does not count.
        ignored: headers whose value was unusable.
    """

    key: str = ""
    number: int | None = None
    ignored: int = 0

    @property
    def may_follow(self) -> bool:
        """Whether there can have been a try before this one."""
        return bool(self.key) or bool(self.number)

    def attempt(self, body: bytes, *, tenant: str, client: str) -> Attempt | None:
        """Which try of which request this is, or None where nothing tells."""
        if self.key:
            return Attempt(same=(self.key, tenant, "" if tenant else client))
        if self.number is None:
            return None
        return Attempt(same=(hash(body), len(body), tenant, client), number=self.number, client=(tenant, client))

    def unread(self, *, tenant: str, client: str) -> Attempt | None:
        """The same of a request whose body nobody has read: it is like no other."""
        if self.number is None:
            return None
        return Attempt(same=None, number=self.number, client=(tenant, client))


NO_SIGNS = Signs()


def signs_of(headers: Mapping[str, str]) -> Signs:
    """Read the signs; never raises, whatever the texts. Several values of one name make it unusable."""
    key, count = headers.get(_KEY_HEADER), headers.get(_COUNT_HEADER)
    if key is None and count is None:
        return NO_SIGNS
    has_key = key is not None and 0 < len(key) <= KEY_CHARS_MAX
    has_count = count is not None and _COUNT.fullmatch(count) is not None
    return Signs(
        key=key if key is not None and has_key else "",
        number=int(count) if count is not None and has_count else None,
        ignored=int(key is not None and not has_key) + int(count is not None and not has_count),
    )


def client_of(headers: Mapping[str, str]) -> str:
    """Where a request comes from, as Envoy saw it; empty where it does not say."""
    return headers.get(_CLIENT_HEADER, "")
