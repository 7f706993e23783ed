"""What simulated engines cost and hold: constants of a model on its GPUs.

```
step_s = base + (floor^3 + (token * T)^3)^(1/3) + kv_token * K + attention * A
T  tokens of the step: one for each decoding sequence, and the prefill chunk's
K  KV tokens that the decoding sequences read
A  sum over prefill chunks of chunk tokens times their mean context, so that a prompt of p tokens adds p^2 / 2 in all
```
`floor` is the time to read the weights, `token` the time to multiply by them: whichever is longer rules, and the cube
root of cubes rounds the corner as measured kernels do. Figures are fitted to published H100 and A100 benchmarks.
"""

from dataclasses import dataclass, replace
from math import inf

BLOCK_TOKENS = 16
"""KV tokens that are given out and taken back together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Coefficients of the step's duration, in seconds, and seconds a token, a KV token, a token times a token."""

    base_s: float
    floor_s: float
    token_s: float
    kv_token_s: float
    attention_s: float

    def seconds(self, tokens: int, kv_tokens: int, attention: float) -> float:
        """Duration of a step of `tokens` that reads `kv_tokens` and attends over `attention` token pairs."""
        matrices_s: float = (self.floor_s**3 + (self.token_s * tokens) ** 3) ** (1 / 3)
        return self.base_s + matrices_s + self.kv_token_s * kv_tokens + self.attention_s * attention

    def scaled(self, factor: float) -> "StepCost":
        """The same engine with every step `factor` times as long."""
        return StepCost(
            base_s=self.base_s * factor,
            floor_s=self.floor_s * factor,
            token_s=self.token_s * factor,
            kv_token_s=self.kv_token_s * factor,
            attention_s=self.attention_s * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One kind of engine.

    Attributes:
        cost: how long a step takes.
        kv_tokens: tokens its KV cache holds.
        slots: sequences it runs at once (vLLM's max_num_seqs).
        batched_tokens: tokens of one step (vLLM's max_num_batched_tokens), at least `slots`.
        context_tokens: the longest prompt and answer together (vLLM's max_model_len), at most `kv_tokens`.
        tpot_target_s: time per output token that its users accept.
        log_mean, log_sigma: lengths of its answers, in tokens, as a log-normal.
    """

    name: str
    cost: StepCost
    kv_tokens: int
    slots: int
    batched_tokens: int
    context_tokens: int
    tpot_target_s: float
    log_mean: float = 5.0
    log_sigma: float = 0.9

    def __post_init__(self) -> None:
        if self.slots < 1 or self.batched_tokens < self.slots:
            raise ValueError(f"1 <= slots <= batched_tokens does not hold: {self.slots}, {self.batched_tokens}")
        if not 2 <= self.context_tokens <= self.kv_blocks * BLOCK_TOKENS:
            raise ValueError(
                f"context_tokens must be from 2 to what whole blocks of kv_tokens hold: "
                f"{self.context_tokens}, {self.kv_tokens}"
            )

    @property
    def kv_blocks(self) -> int:
        """Whole blocks of the KV cache."""
        return self.kv_tokens // BLOCK_TOKENS

    def resized(
        self, *, slots: int | None = None, kv_tokens: int | None = None, batched_tokens: int | None = None
    ) -> "EngineProfile":
        """The same engine with other limits; None keeps the profile's. ValueError where they contradict each other."""
        kv = self.kv_tokens if kv_tokens is None else kv_tokens
        return replace(
            self,
            slots=self.slots if slots is None else slots,
            batched_tokens=self.batched_tokens if batched_tokens is None else batched_tokens,
            kv_tokens=kv,
            context_tokens=min(self.context_tokens, kv // BLOCK_TOKENS * BLOCK_TOKENS),
        )

    def slowed(self, factor: float) -> "EngineProfile":
        """The same engine with every step `factor` times as long."""
        if not 0.0 < factor < inf:
            raise ValueError(f"factor must be above 0 and finite: {factor}")
        return replace(self, cost=self.cost.scaled(factor), tpot_target_s=self.tpot_target_s * factor)


_ALL = (
    EngineProfile(
        name="llama-70b-4xh100",
        cost=StepCost(base_s=6e-3, floor_s=14.3e-3, token_s=64.5e-6, kv_token_s=4.1e-8, attention_s=1.64e-9),
        kv_tokens=412_000,
        slots=256,
        batched_tokens=1024,
        context_tokens=131_072,
        tpot_target_s=0.15,
    ),
    EngineProfile(
        name="llama-8b-h100",
        cost=StepCost(base_s=3e-3, floor_s=6.0e-3, token_s=21.5e-6, kv_token_s=6.5e-8, attention_s=1.3e-9),
        kv_tokens=400_000,
        slots=256,
        batched_tokens=2048,
        context_tokens=131_072,
        tpot_target_s=0.1,
    ),
    EngineProfile(
        name="llama-8b-a100",
        cost=StepCost(base_s=3e-3, floor_s=9.8e-3, token_s=68e-6, kv_token_s=1.1e-7, attention_s=3.4e-9),
        kv_tokens=120_000,
        slots=256,
        batched_tokens=1024,
        context_tokens=120_000,
        tpot_target_s=0.12,
    ),
    # No real GPU: small enough that two requests a second fill it, slow enough that a laptop runs the whole stack.
    EngineProfile(
        name="demo",
        cost=StepCost(base_s=5e-3, floor_s=25e-3, token_s=150e-6, kv_token_s=1e-6, attention_s=2e-8),
        kv_tokens=6_400,
        slots=16,
        batched_tokens=512,
        context_tokens=4_096,
        tpot_target_s=0.1,
    ),
)

PROFILES: dict[str, EngineProfile] = {profile.name: profile for profile in _ALL}
"""Every profile by its name."""
