"""What the caller itself says about the answer's length, and which outcomes say something about the model's."""

from msgspec import Struct

from tidegate_estimator.request import CompletionRequest

SEQUENCES_MAX = 2**20
TOKENS_MAX = 2**30


class Caps(Struct, frozen=True, kw_only=True, gc=False):
    """The caller's bounds, all sequences together.

    Attributes:
        cap: completion tokens allowed, or None.
        least: completion tokens demanded.
        sequences: completions generated at once, at least 1.
        forced: the answer will be exactly `cap` long, whatever the model says.
        teaches: the answer's length says something about the model.
        fewest, most: tokens that the answer's length lies between, whatever is predicted; `fewest` is at least 1.
    """

    cap: int | None
    least: int
    sequences: int
    forced: bool
    teaches: bool
    fewest: float
    most: float

    def clip(self, tokens: float) -> float:
        """A figure in tokens within the bounds."""
        return min(max(tokens, self.fewest), self.most)


def caps_of(request: CompletionRequest) -> Caps:
    """The bounds of a request; figures out of any range are brought into it."""
    sequences = min(max(request.sequences, 1), SEQUENCES_MAX)
    cap = None if request.max_tokens is None else min(max(request.max_tokens, 1), TOKENS_MAX) * sequences
    least = min(max(request.min_tokens, 0), TOKENS_MAX) * sequences
    forced = cap is not None and (request.ignore_eos or least >= cap)
    if forced and cap is not None:
        least = cap
    most = float(TOKENS_MAX * sequences if cap is None else cap)
    return Caps(
        cap=cap,
        least=least,
        sequences=sequences,
        forced=forced,
        teaches=not (forced or request.ignore_eos),
        fewest=max(1.0, float(least)),
        most=most,
    )


def was_cut(tokens: int, finish_reason: str, cap_tokens: int) -> bool:
    """Whether an answer of `tokens` would have gone on.

    A cut at a bound the caller did not state (`cap_tokens` is 0) is the engine's own limit, which will cut the next
    answer too: that one counts as the length.
    """
    return (
        finish_reason == "abort"
        or (finish_reason == "length" and cap_tokens > 0)
        or (not finish_reason and 0 < cap_tokens <= tokens)
    )
