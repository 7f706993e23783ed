"""This project's controller through its adapter: in each mode, and with the truth.

ours           the default mode: no first tokens, the engines' counts once a second
ours-compat    responses pass through the gateway: first tokens, no counts
ours-native    neither: what each finished request says of itself
clair          true lengths, true step times, first tokens and counts; deadline order with alpha 30, 1,000 deep, no
               early reject: the reference that ADMISSION.md calls clairvoyant
"""

from collections.abc import Mapping
from typing import Any

from bench.goodput.adapter import Adapter, Options
from bench.goodput.contender import Contender, Scene
from bench.goodput.policy import Policy

READING_PERIOD_S = 1.0


def ours(*, first_tokens: bool = False, readings: bool = True, **options: Any) -> Contender:
    """The controller with `Options(**options)`."""
    return Contender(
        make=lambda scene: adapter(scene.pool, **options),
        first_tokens=first_tokens,
        reading_period_s=READING_PERIOD_S if readings else None,
    )


def adapter(pool: Mapping[str, Any], **options: Any) -> Policy:
    """The controller behind the interface that the simulation drives."""
    return Adapter(pool, options=Options(**options))


def _clairvoyant(scene: Scene) -> Policy:
    return adapter(scene.pool, alpha=30.0, queue_len=1000, early_reject=False, step_seconds=scene.step_seconds)


CONTENDERS: dict[str, Contender] = {
    "ours": ours(),
    "ours-compat": ours(first_tokens=True, readings=False),
    "ours-native": ours(readings=False),
    "clair": Contender(make=_clairvoyant, knows_lengths=True, first_tokens=True, reading_period_s=READING_PERIOD_S),
}
