"""Which addresses may be polled: `--engine-allow`, a comma list of CIDRs, IP addresses and DNS suffixes.

Where metrics pages are is part of the policy, and the policy comes in over the gRPC port. Whoever reaches that port
must not be able to aim our requests, least of all at what hands out credentials. So an address is judged at the moment
it is connected to: names are resolved first, and what they resolve to is what counts.

A DNS suffix vouches for every address its names resolve to: whoever writes that zone is trusted. The one exception are
addresses that clouds give their metadata services and that are link-local. Those pass only by a rule that lies wholly
among them, such as `169.254.10.0/24`: never by a wide rule (`0.0.0.0/0`) that was not written with them in mind, and
never by a name.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from tidegate.errors import FlagError

FLAG = "--engine-allow"
ENGINE_ALLOW = "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7"
"""The default: loopback and the private ranges."""
RULES_MAX = 256

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

GUARDED: tuple[IPNetwork, ...] = (
    IPv4Network("169.254.0.0/16"),  # link-local: metadata of AWS, Azure, GCP, Oracle; credentials of ECS and EKS
    IPv6Network("fe80::/10"),  # link-local
    IPv6Network("fd00:ec2::/32"),  # AWS, inside the private range
    IPv6Network("fd20:ce::/32"),  # GCP, inside the private range
    IPv4Network("100.100.100.200/32"),  # Alibaba, inside the range that carriers and some pod networks use
    IPv4Network("168.63.129.16/32"),  # Azure's own, a public address
)
_MAPPED = IPv6Network("::ffff:0:0/96")
_SUFFIX = re.compile(r"(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)+", re.ASCII)


class EngineAllow:
    """The rules, read.

    Args:
        networks: addresses that pass.
        suffixes: ends of names, each with its dot and in lower case, all of whose addresses pass.
    """

    __slots__ = ("_networks", "_suffixes")

    def __init__(self, networks: Sequence[IPNetwork], suffixes: Sequence[str] = ()) -> None:
        self._networks = tuple(networks)
        self._suffixes = tuple(suffixes)

    def allows(self, address: IPAddress, name: str = "") -> bool:
        """Whether `address` may be connected to.

        Args:
            address: what is connected to; an IPv4 address in IPv6 clothes is judged as the IPv4 address it is.
            name: the DNS name it was resolved from, empty where it was given as it is.
        """
        plain = (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
        guard = next((network for network in GUARDED if plain in network), None)
        if guard is not None:
            return any(plain in rule and _within(rule, guard) for rule in self._networks)
        return any(plain in rule for rule in self._networks) or self._vouched(name)

    def _vouched(self, name: str) -> bool:
        plain = name.lower().removesuffix(".")
        return any(plain.endswith(suffix) and len(plain) > len(suffix) for suffix in self._suffixes)


def engine_allow(text: str) -> EngineAllow:
    """The rules of a comma list.

    Raises:
        FlagError: an entry is none of the three, or there are more than 256; it says what would be right.
    """
    entries = [entry.strip() for entry in text.split(",")]
    if len(entries) > RULES_MAX:
        raise FlagError(f"{FLAG}: {len(entries)} entries; at most {RULES_MAX} are allowed")
    suffixes = [entry.lower() for entry in entries if _SUFFIX.fullmatch(entry)]
    networks = [_network(entry) for entry in entries if not _SUFFIX.fullmatch(entry)]
    return EngineAllow(networks, suffixes)


def _network(entry: str) -> IPNetwork:
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        network = None
    if network is None or "%" in entry:  # a zone (`%eth0`) would be read over
        raise FlagError(
            f"{FLAG}: {entry[:80]!r} is not usable; expected a CIDR such as 10.0.0.0/8, an IP address, "
            "or a DNS suffix with its dot such as .svc.cluster.local"
        )
    if "/" in entry and not _written_whole(entry):
        raise FlagError(f"{FLAG}: {entry!r} has bits set behind its prefix; did you mean {network}?")
    if _within(network, _MAPPED):
        raise FlagError(f"{FLAG}: {entry!r} is an IPv4 address in IPv6 clothes; write it as IPv4")
    return network


def _written_whole(entry: str) -> bool:
    try:
        ip_network(entry)
    except ValueError:
        return False
    return True


def _within(inner: IPNetwork, outer: IPNetwork) -> bool:
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)
