"""Which addresses may be polled."""

from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import FlagError
from tidegate.signals.allow import ENGINE_ALLOW, GUARDED, RULES_MAX, EngineAllow, IPAddress, IPNetwork, engine_allow

METADATA = ("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16")

v4_networks = st.builds(
    lambda address, bits: ip_network((address, bits), strict=False),
    st.ip_addresses(v=4).map(int).map(IPv4Address),
    st.integers(0, 32),
)
v6_networks = st.builds(
    lambda address, bits: ip_network((address, bits), strict=False),
    st.ip_addresses(v=6).map(int).map(IPv6Address),
    st.integers(0, 128),
)
networks = st.one_of(v4_networks, v6_networks)
labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
dns_names = st.lists(labels, min_size=1, max_size=4).map(".".join)


def members(network: IPNetwork) -> st.SearchStrategy[IPAddress]:
    """Addresses of a network."""
    return st.integers(0, network.num_addresses - 1).map(lambda index: network[index])


def guarded(address: IPAddress) -> bool:
    """Whether a cloud may hand out credentials there."""
    plain = (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
    return any(plain in network for network in GUARDED)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.1.2.3", True),
        ("172.31.255.255", True),
        ("172.32.0.0", False),
        ("192.168.0.1", True),
        ("fc00::1", True),
        ("fd12:3456::1", True),
        ("8.8.8.8", False),
        ("2001:4860:4860::8888", False),
        ("0.0.0.0", False),
        ("::", False),
        ("100.64.0.1", False),
        ("fe80::1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::ffff:10.0.0.1", True),
        ("::ffff:8.8.8.8", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:a9fe:a9fe::1", False),
        *((address, False) for address in METADATA),
    ],
)
def test_the_default_is_loopback_and_private_ranges(address: str, allowed: bool) -> None:
    """Unless told otherwise, only engines of one's own network are polled, and no metadata service."""
    assert engine_allow(ENGINE_ALLOW).allows(ip_address(address)) is allowed


@pytest.mark.parametrize("address", METADATA)
def test_wide_rules_and_names_do_not_open_metadata_services(address: str) -> None:
    """Neither everything nor a name that points there lets a metadata service pass."""
    wide = engine_allow("0.0.0.0/0,::/0,.svc.cluster.local")
    assert not wide.allows(ip_address(address))
    assert not wide.allows(ip_address(address), "vllm.svc.cluster.local")


@pytest.mark.parametrize(
    ("rule", "address"),
    [("169.254.10.0/24", "169.254.10.7"), ("fe80::/10", "fe80::1"), ("100.100.100.200", "100.100.100.200")],
)
def test_guarded_addresses_pass_by_a_rule_of_their_own(rule: str, address: str) -> None:
    """Who writes a rule that lies wholly among guarded addresses means them."""
    assert engine_allow(rule).allows(ip_address(address))


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("vllm.ns.svc.cluster.local", True),
        ("VLLM.ns.SVC.cluster.local.", True),
        ("svc.cluster.local", False),
        (".svc.cluster.local", False),
        ("vllm.evil-svc.cluster.local", False),
        ("evilsvc.cluster.local", False),
        ("vllm.svc.cluster.local.evil.example", False),
        ("", False),
    ],
)
def test_a_suffix_vouches_for_names_below_it_only(name: str, allowed: bool) -> None:
    """A DNS suffix lets any address of a name below it pass, and no address of another name."""
    allow = engine_allow("10.0.0.0/8, .svc.Cluster.local ")
    assert allow.allows(ip_address("8.8.8.8"), name) is allowed
    assert allow.allows(ip_address("10.0.0.1"), name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a CIDR"),
        ("10.0.0.0/8,", "expected a CIDR"),
        ("localhost", "expected a CIDR"),
        ("vllm.example.com", "with its dot"),
        ("*.example.com", "with its dot"),
        (".", "with its dot"),
        (".exa mple", "with its dot"),
        ("[::1]", "expected a CIDR"),
        ("10.0.0.0/33", "expected a CIDR"),
        ("127.1", "expected a CIDR"),
        ("10.1.2.3/8", "did you mean 10.0.0.0/8"),
        ("fd00::1/8", "did you mean fd00::/8"),
        ("::ffff:10.0.0.0/104", "write it as IPv4"),
        ("fe80::1%eth0", "expected a CIDR"),
        ("10.0.0.1," * RULES_MAX + "10.0.0.1", "at most 256"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_right(text: str, says: str) -> None:
    """Each wrong entry is a FlagError that names the flag and says what would be right."""
    with pytest.raises(FlagError, match="--engine-allow") as error:
        engine_allow(text)
    assert says in str(error.value)


@given(st.lists(networks, min_size=1, max_size=5), st.data())
def test_an_address_passes_where_a_rule_holds_it(rules: list[IPNetwork], data: st.DataObject) -> None:
    """Allowed are exactly the addresses of the networks named, guarded ones aside, however they are written."""
    allow = EngineAllow(rules)
    address = data.draw(st.one_of(st.ip_addresses(), members(rules[0])))
    plain = (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
    if not guarded(plain):
        assert allow.allows(address) == any(plain in rule for rule in rules)


@given(networks.filter(lambda network: not any(network.overlaps(guard) for guard in GUARDED)), st.data())
def test_an_entry_means_the_network_it_shows(network: IPNetwork, data: st.DataObject) -> None:
    """A network that is written down and read again lets its own addresses pass, and one outside not."""
    if network.overlaps(IPv6Network("::ffff:0:0/96")):
        return  # those are written as IPv4
    allow = engine_allow(str(network))
    assert allow.allows(data.draw(members(network)))
    outside = data.draw(st.ip_addresses(v=network.version))
    assert allow.allows(outside) == (outside in network)


@given(st.sampled_from(GUARDED).flatmap(members), dns_names)
def test_guarded_addresses_never_pass_by_accident(address: IPAddress, name: str) -> None:
    """No guarded address passes the default, everything, or a name under a trusted suffix, mapped or not."""
    mapped = IPv6Address(f"::ffff:{address}") if isinstance(address, IPv4Address) else address
    for rules in (ENGINE_ALLOW, "0.0.0.0/0,::/0", ".local"):
        for each in (address, mapped):
            assert not engine_allow(rules).allows(each, f"{name}.local")


@given(dns_names, dns_names, st.ip_addresses().filter(lambda address: not guarded(address)))
def test_a_suffix_is_whole_labels(name: str, suffix: str, address: IPAddress) -> None:
    """A name passes by a suffix exactly where its last labels are the suffix and it has one more."""
    below = name.split(".")[-suffix.count(".") - 1 :] == suffix.split(".") and name.count(".") > suffix.count(".")
    assert engine_allow(f".{suffix}").allows(address, name) == below
    assert engine_allow(f".{suffix}").allows(address, f"{name}.{suffix}")


@given(st.text(max_size=60))
def test_any_text_is_rules_or_an_error_of_the_flag(text: str) -> None:
    """Whatever is written, it is read or refused with a FlagError."""
    with suppress(FlagError):
        engine_allow(text)
