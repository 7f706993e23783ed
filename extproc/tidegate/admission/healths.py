"""What the answers of each engine of a pool say of its health, by the address in the access log.

    share of one engine    that of its health (see health.py)
    share of a whole pool  1 - sum of what each engine lacks / engines: those the pool was told of or, where more are
                           seen in the log, those

So a pool finds out about each of its engines even where it does not choose among them. Besides the rules of health.py,
an engine has failed that refuses 5 times in a row without one success, that lets a client wait for 8 seconds without a
byte, or that a request was steered to and did not get to: Envoy sent it elsewhere because the engine could not be
reached or is none of Envoy's. And where no engine is left, what answers, if only with errors, keeps a quarter of its
limits, or a client that provokes errors could close a pool.
"""

from collections import OrderedDict
from collections.abc import Iterator

from tidegate.admission.health import Health
from tidegate.admission.outcome import Ending, Outcome

_ADDRESSES_MAX = 512  # the engines of one pool, twice over
_SEEN_S = 300.0
_REFUSALS_FAILED = 5
_SILENT_S = 8.0
_LAST_SHARE = 0.25
_CONNECT_DETAILS = ("connection_failure", "connection_timeout", "remote_connection_failure", "no_healthy_upstream")


class _Engine:
    """What the answers of one address say."""

    __slots__ = ("health", "refusals", "seen_s")

    def __init__(self) -> None:
        self.health = Health()
        self.refusals = 0
        self.seen_s = 0.0


class Healths:
    """Healths by address, of the 512 addresses last heard of; one that was never heard of is healthy."""

    __slots__ = ("_engines",)

    def __init__(self) -> None:
        self._engines: OrderedDict[str, _Engine] = OrderedDict()

    def judge(self, outcome: Outcome, now_s: float, *, silent_s: float) -> bool:
        """Take in what an outcome says; False where it changes no share.

        `silent_s`: how long a client that left had waited for a first byte.
        """
        unreached = any(detail in outcome.details for detail in _CONNECT_DETAILS)
        if outcome.steered_wrong:  # where nobody at all was reached, it was not either; else it may be none of Envoy's
            self._seen(outcome.steered, now_s).health.failed(now_s, connect=unreached)
        address = outcome.engine or outcome.steered
        if not address:  # it got nowhere: our own refusal, a client that left while held, a cluster without a host
            return outcome.steered_wrong
        engine = self._seen(address, now_s)
        health = engine.health
        before = health.share(now_s)
        match outcome.ending:
            case Ending.COMPLETE | Ending.BAD_REQUEST:
                engine.refusals = 0
                health.succeeded(now_s)
            case Ending.ENGINE_REFUSED:
                engine.refusals += 1
                health.refused(now_s)
                if engine.refusals >= _REFUSALS_FAILED:
                    health.failed(now_s, connect=False)
            case Ending.ENGINE_FAILED:
                health.failed(now_s, connect=unreached)
            case Ending.CLIENT_CANCELLED if silent_s >= _SILENT_S:
                health.failed(now_s, connect=False)
            case _:
                pass
        return outcome.steered_wrong or health.share(now_s) != before

    def share(self, address: str, now_s: float) -> float:
        """Share of its limits that an engine may use, 0 while it is down."""
        engine = self._engines.get(address)
        return 1.0 if engine is None else engine.health.share(now_s)

    def last_share(self, address: str) -> float:
        """The same where no engine of the pool is left."""
        engine = self._engines.get(address)
        return _LAST_SHARE if engine is not None and not engine.health.unreachable else 0.0

    def pool_share(self, engines: int, now_s: float) -> float:
        """Share of the limits of a whole pool of so many engines."""
        seen = self._seen_lately(now_s)
        lost = sum(1.0 - engine.health.share(now_s) for engine in seen)
        return max(1.0 - lost / max(engines, len(seen), 1), 0.0)

    def last_pool_share(self, engines: int, now_s: float) -> float:
        """The same where no engine of it is left."""
        answering = sum(not engine.health.unreachable for engine in self._seen_lately(now_s))
        return _LAST_SHARE * answering / max(engines, answering, 1)

    def down(self, now_s: float) -> Iterator[str]:
        """Addresses of the engines that are down by what their answers say."""
        return (address for address, engine in self._engines.items() if engine.health.down(now_s))

    def next_change_s(self, now_s: float) -> float | None:
        """When time alone changes a share next; None where it changes none."""
        moments = (engine.health.next_change_s(now_s) for engine in self._engines.values())
        return min((moment for moment in moments if moment is not None), default=None)

    def _seen(self, address: str, now_s: float) -> _Engine:
        engine = self._engines.get(address)
        if engine is None:
            if len(self._engines) >= _ADDRESSES_MAX:
                self._engines.popitem(last=False)
            engine = self._engines[address] = _Engine()
        engine.seen_s = now_s
        self._engines.move_to_end(address)
        return engine

    def _seen_lately(self, now_s: float) -> list[_Engine]:
        return [engine for engine in self._engines.values() if engine.seen_s > now_s - _SEEN_S]
