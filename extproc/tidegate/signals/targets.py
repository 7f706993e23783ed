"""What is polled: one serving address, and where its page is."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.policy import EngineAddress
from tidegate.signals.allow import IPAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One engine to poll.

    Attributes:
        address: where it serves, `HOST:PORT` as Envoy sees it.
        url: of its metrics page.
        name: DNS name that the address was resolved from, empty where the policy named the address itself.
    """

    address: str
    url: str
    name: str = ""


def static_target(engine: EngineAddress, page_path: str) -> Target:
    """The target of an engine that is named with its address."""
    return Target(address=engine.address, url=engine.metrics or f"http://{engine.address}{page_path}")


def dns_targets(engine: EngineAddress, addresses: Iterable[IPAddress], page_path: str) -> list[Target]:
    """One target for each address that a name resolves to."""
    name, _, port = engine.address.rpartition(":")
    servings = [f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}" for address in addresses]
    path = engine.metrics or page_path
    return [Target(address=serving, url=f"http://{serving}{path}", name=name) for serving in servings]
