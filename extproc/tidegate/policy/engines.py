"""How the list of engines is read: `HOST:PORT[;metrics=URL],...` or `dns:NAME:PORT[;metrics=PATH]`."""

import re
from ipaddress import IPv4Address, IPv6Address

from tidegate.policy.records import EngineAddress
from tidegate.policy.values import whole

ENGINES_MAX = 256

_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*", re.ASCII)
_LOOKS_LIKE_IPV4 = re.compile(r"[0-9.]+", re.ASCII)
_URL = re.compile(r"https?://[A-Za-z0-9_.:\[\]-]+(/[!-+\--:<-~]*)?", re.ASCII)  # printable, without `,` and `;`
_PATH = re.compile(r"/[!-+\--:<-~]*", re.ASCII)


def engines(text: str) -> tuple[EngineAddress, ...]:
    """The engines of a pool, in the order written; no address twice.

    Raises:
        ValueError: an entry is not of the form above, an address is there twice, or there are more than 256.
    """
    entries = text.split(",")
    if len(entries) > ENGINES_MAX:
        raise ValueError(text)
    found = tuple(_engine(entry.strip(" ")) for entry in entries)
    if len({engine.address for engine in found}) < len(found):
        raise ValueError(text)
    return found


def _engine(entry: str) -> EngineAddress:
    serving, semicolon, option = entry.partition(";")
    serving, option = serving.rstrip(" "), option.lstrip(" ")
    dns = serving.startswith("dns:")
    address = _address(serving.removeprefix("dns:"), literal=not dns)
    if not semicolon:
        return EngineAddress(address=address, dns=dns)
    metrics = option.removeprefix("metrics=")
    if metrics == option or (_PATH if dns else _URL).fullmatch(metrics) is None:
        raise ValueError(entry)
    return EngineAddress(address=address, metrics=metrics, dns=dns)


def _address(text: str, *, literal: bool) -> str:
    """`HOST:PORT` in the one form that Envoy prints; `literal` allows IP addresses beside names."""
    host, _, port_text = text.rpartition(":")
    port = whole(port_text, 1, 65_535)
    if host.startswith("[") and host.endswith("]") and literal:
        return f"[{_ipv6(host[1:-1])}]:{port}"
    if _LOOKS_LIKE_IPV4.fullmatch(host) is not None:
        if not literal:
            raise ValueError(text)
        return f"{IPv4Address(host)}:{port}"
    if _HOST_NAME.fullmatch(host) is None:
        raise ValueError(text)
    return f"{host.lower()}:{port}"


def _ipv6(text: str) -> IPv6Address:
    address = IPv6Address(text)
    if address.scope_id is not None:
        raise ValueError(text)
    return address
