"""When an engine is polled next.

    healthy      1 s between the starts of two polls, drawn anew each time from 0.9 to 1.1 s
    failing      min(4 s, 2^(failures - 1) s), times 0.8 to 1
    first        within 0.1 s; the second within a second of it

A period that is drawn anew lets engines drift apart; the short first round and the random second one spread the engines
of a new pool over the second at once, so that a hundred pages do not come in one step.

A dead engine costs a connection attempt, a hung one a socket for the deadline of 2 s, so a second and more between
attempts saves something. Four seconds are the limit because that is what a recovered engine waits at most before it is
seen again, with its queue still closed: an order of magnitude below the time it took to load its model, and within the
patience of a caller who is held. Times run from start to start, so that the deadline of a hung engine counts as pause.
"""

from random import Random

PERIOD_S = 1.0
PERIOD_JITTER = 0.1
BACK_OFF_S_MAX = 4.0
BACK_OFF_JITTER = 0.2
FIRST_S_MAX = 0.1


def first_wait_s(rng: Random) -> float:
    """Seconds until a new engine is polled for the first time."""
    return rng.uniform(0.0, FIRST_S_MAX)


def period_s(*, failures: int, polls: int, rng: Random) -> float:
    """Seconds between the start of the poll that has just ended and the next.

    Args:
        failures: polls in a row that failed, up to this one.
        polls: so far.
        rng: for the jitter.
    """
    if failures:
        doublings = min(failures - 1, 16)
        return min(BACK_OFF_S_MAX, PERIOD_S * 2.0**doublings) * rng.uniform(1.0 - BACK_OFF_JITTER, 1.0)
    if polls == 1:
        return rng.uniform(0.0, PERIOD_S)
    return PERIOD_S * rng.uniform(1.0 - PERIOD_JITTER, 1.0 + PERIOD_JITTER)
