"""What a request costs in dollars: by its tokens, or by the time it takes up of an engine that is paid by the hour.

    by tokens       prompt tokens / 1000 x price + completion tokens / 1000 x price
    by the hour     bottleneck_s x price / 3600

`bottleneck_s` (see cost.py) is how long the scarcest resource of one engine is taken: while an engine is full, the
shares of the requests in it add up to about the hours paid for. What it costs while it idles is in nobody's share.

Money is whole nano-dollars (1e-9 USD): the cheapest token (0.01 USD a million) is still ten of them.
"""

from msgspec import Struct

NANO = 1_000_000_000
NANOUSD_MAX = 10**15
"""A million dollars a request, and a double holds it exactly; nonsensical figures stop here."""


class Price(Struct, frozen=True, kw_only=True, gc=False):
    """What is charged, in nano-dollars; a price that is not stated is None.

    Attributes:
        engine_hour_nanousd: of the GPUs of one engine, an hour.
        prompt_nanousd, completion_nanousd: of a thousand tokens. Where either is stated, tokens are what is paid for.
    """

    engine_hour_nanousd: int | None = None
    prompt_nanousd: int | None = None
    completion_nanousd: int | None = None

    @property
    def by_tokens(self) -> bool:
        """Tokens are paid for; otherwise the engine's time."""
        return self.prompt_nanousd is not None or self.completion_nanousd is not None

    def of_tokens(self, prompt_tokens: float, completion_tokens: float) -> int:
        """What so many tokens cost, in nano-dollars."""
        prompt = prompt_tokens * (self.prompt_nanousd or 0)
        completion = completion_tokens * (self.completion_nanousd or 0)
        return _bounded((prompt + completion) / 1000.0)

    def of_time(self, bottleneck_s: float) -> int:
        """What so many seconds of one engine cost, in nano-dollars."""
        return _bounded(bottleneck_s * (self.engine_hour_nanousd or 0) / 3600.0)


def _bounded(nanousd: float) -> int:
    # NaN lands at nothing: one nonsensical figure must not be a million dollars in a counter
    return round(min(nanousd, float(NANOUSD_MAX))) if nanousd > 0.0 else 0
