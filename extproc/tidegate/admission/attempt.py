"""What tells that a request is another try of one that came before."""

from collections.abc import Hashable

from msgspec import Struct


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """One try of a request.

    Attributes:
        same: equal for all tries of one request, and for nothing else: it holds whose request it is.
        number: how many tries came before this one, by its client's own count; None where `same` is the client's own
            name for the request, so that whatever comes later under it is another try.
    """

    same: Hashable
    number: int | None = None

    def follows(self, number: int | None) -> bool:
        """Whether this can be a later try than that one; two first tries are two requests that look alike."""
        return self.number is None or number is None or self.number > number

    @property
    def may_follow(self) -> bool:
        """Whether there can have been a try before this one."""
        return self.number is None or self.number > 0
