"""Every policy of the tables by its name. One with settings appears once for each point of a small grid, `name:point`.

The tables give the best point of each cell: what an operator would reach who knew the traffic beforehand.
"""

from bench.goodput.contender import Contender
from bench.goodput.policies import ours, utilisation
from bench.goodput.policies.baseline import Baseline
from bench.goodput.policies.fixed import FixedConcurrency
from bench.goodput.policies.gradient2 import Gradient2
from bench.goodput.policies.littles_law import LittlesLaw
from bench.goodput.policies.min_rtt_gradient import MinRttGradient, Tuning
from bench.goodput.policies.p99_window import P99Window
from bench.goodput.policies.slots import SequenceSlots
from bench.goodput.policies.success_rate import SuccessRate
from bench.goodput.policies.utilisation import UtilisationGate
from bench.goodput.policies.vegas import Vegas

FIXED_GRID = (16, 32, 48, 64, 96, 128, 192)
QUEUE_TOKENS_GRID = (4_096, 8_192, 16_384, 32_768)
ADAPTIVE_GRID = {
    "defaults": Tuning(),
    "1s": Tuning(update_s=1.0),
    "1s-count20": Tuning(update_s=1.0, request_count=20),
    "1s-count20-buffer1": Tuning(update_s=1.0, request_count=20, buffer=1.0),
    "1s-min10-count20-buffer1": Tuning(update_s=1.0, request_count=20, buffer=1.0, concurrency_min=10),
    "1s-min10-count20-p90": Tuning(update_s=1.0, request_count=20, percentile=0.9, concurrency_min=10),
    "1s-min10-count20-rare": Tuning(update_s=1.0, request_count=20, concurrency_min=10, min_rtt_every_s=300.0),
    "5s-min10-count20-rare": Tuning(update_s=5.0, request_count=20, concurrency_min=10, min_rtt_every_s=300.0),
}


def _fixed(limit: int) -> Contender:
    return Contender(make=lambda scene: FixedConcurrency(scene.pool, limit * len(scene.pool["engines"])))


def _adaptive(tuning: Tuning) -> Contender:
    return Contender(make=lambda scene: MinRttGradient(scene.pool, tuning, scene.seed))


def _token_cap(queue_tokens_max: int) -> Contender:
    return Contender(make=lambda scene: Baseline(scene.pool), queue_tokens_max=queue_tokens_max)


CONTENDERS: dict[str, Contender] = {
    "none": Contender(make=lambda scene: Baseline(scene.pool)),
    "envoy-admission": Contender(make=lambda scene: SuccessRate(scene.pool, scene.seed), first_tokens=True),
    **{f"envoy-adaptive:{name}": _adaptive(tuning) for name, tuning in ADAPTIVE_GRID.items()},
    "gradient2": Contender(make=lambda scene: Gradient2(scene.pool)),
    "vegas": Contender(make=lambda scene: Vegas(scene.pool, scene.seed)),
    "p99": Contender(make=lambda scene: P99Window(scene.pool)),
    "slots": Contender(make=lambda scene: SequenceSlots(scene.pool)),
    "littles-law": Contender(make=lambda scene: LittlesLaw(scene.pool)),
    "gie": Contender(make=lambda scene: UtilisationGate(scene.pool), reading_period_s=utilisation.PERIOD_S),
    **{f"token-cap:{tokens}": _token_cap(tokens) for tokens in QUEUE_TOKENS_GRID},
    **{f"fixed:{limit}": _fixed(limit) for limit in FIXED_GRID},
    **ours.CONTENDERS,
}
