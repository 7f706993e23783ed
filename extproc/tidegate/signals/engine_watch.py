"""Between the poller of a pool and its controller: which engines there are, what they say, and when they say nothing.

Where the policy names addresses alone, nothing is found and nothing asked, and the policy's word on the engines is the
last. Else the poller's is: the controller keeps its books for the engines that were told last, whatever changes in the
policy meanwhile, until it names others.
"""

import logging

from tidegate.admission.reading import EngineReading
from tidegate.policy import PoolPolicy
from tidegate.signals.causes import Cause
from tidegate.signals.poller import Poller
from tidegate.signals.polling import Polling
from tidegate.signals.registry import reader_of
from tidegate.turnstile import Turnstile

log = logging.getLogger(__name__)


class EngineWatch:
    """The engines of one pool. Implements `EngineListener` and `pools.EngineWatch`.

    Attributes:
        poller: its tallies, and the names that cannot be looked up.
    """

    def __init__(self, policy: PoolPolicy, turnstile: Turnstile, polling: Polling) -> None:
        self.poller = Poller(policy.name, self, polling)
        self._policy = policy
        self._turnstile = turnstile
        self._controller = turnstile.controller
        self._told: tuple[str, ...] | None = None
        self._last: tuple[str, ...] = ()  # the last that were any
        self._refused: set[str] = set()  # engines where nothing listened when they were asked last
        self._look()

    def follow(self, policy: PoolPolicy, now_s: float) -> None:
        """Bring the controller under this policy, and look for its engines."""
        told = self._told if policy.seeks_engines and policy.engines == self._policy.engines else None
        self._policy, self._told = policy, told
        if told is None:
            self._last = ()
            self._controller.reconfigure(policy.limits, policy.engine_count, now_s, names=policy.steered)
            self._controller.unfollow(now_s)
        else:
            names = self._last if policy.steer else ()
            self._controller.reconfigure(policy.limits, max(len(self._last), 1), now_s, names=names)
            self._tell(told, now_s)
        self._look()

    def stop(self) -> None:
        """Look and ask no more."""
        self.poller.stop()

    async def wait_closed(self) -> None:
        """Wait until everything that was under way has ended, after `stop`."""
        await self.poller.wait_closed()

    def on_engines(self, addresses: tuple[str, ...], now_s: float) -> None:
        """The pool now has these engines, and no others."""
        before = set(self._told or ())
        self._told = addresses
        self._last = addresses or self._last
        self._refused.intersection_update(addresses)
        come, gone = len(set(addresses) - before), len(before - set(addresses))
        log.info("pool %s: %d engines, %d of them new; %d are gone", self._policy.name, len(addresses), come, gone)
        self._tell(addresses, now_s)

    def on_reading(self, address: str, reading: EngineReading, now_s: float) -> None:
        """What an engine has just said."""
        self._refused.discard(address)
        self._controller.read(address, reading, now_s)
        self._deliver()

    def on_failure(self, address: str, cause: Cause, now_s: float) -> None:
        """A poll gave no reading. Half a page, where nothing listened before, is an engine that has just started."""
        began_anew = cause is Cause.HALF_PAGE and address in self._refused
        if cause is Cause.REFUSED:
            self._refused.add(address)
        else:
            self._refused.discard(address)
        self._controller.missed(address, now_s, began_anew=began_anew)
        self._deliver()

    def _look(self) -> None:
        policy = self._policy
        reader = reader_of(policy.engine, policy.engine_metrics) if policy.engine else None
        self.poller.reconfigure(policy.engines if policy.seeks_engines else (), reader)

    def _tell(self, addresses: tuple[str, ...], now_s: float) -> None:
        policy = self._policy
        self._controller.follow(addresses, now_s, steered=policy.steer, metered=bool(policy.engine))
        self._deliver()

    def _deliver(self) -> None:
        if self._controller.has_verdicts:
            self._turnstile.tick()
