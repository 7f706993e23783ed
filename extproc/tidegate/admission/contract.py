"""What one tenant may ask of a pool, whatever the pool could give."""

from msgspec import Struct

from tidegate.admission.decision import Reason


class Contract(Struct, frozen=True, kw_only=True, gc=False):
    """Limits of each tenant of a class; None does not limit.

    Attributes:
        name: of the class; a tenant has one account in each class it comes in.
        requests: requests in the pool at once, waiting or running.
        requests_per_minute: requests let in.
        tokens_per_minute: prompt and completion tokens of those, as expected when they came, corrected when they ended.
    """

    name: str = ""
    requests: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class Breach(Struct, frozen=True, kw_only=True, gc=False):
    """A limit of the tenant's own stands against a request.

    Attributes:
        reason: the first such limit.
        retry_s: when time alone will have lifted those that time lifts.
    """

    reason: Reason
    retry_s: float = 0.0
