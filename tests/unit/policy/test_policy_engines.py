"""Reading the list of engines."""

import pytest

from tidegate.policy.engines import ENGINES_MAX, engines
from tidegate.policy.records import EngineAddress


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ("vllm-0.vllm:8000", "vllm-0.vllm:8000"),
        ("VLLM:08000", "vllm:8000"),
        ("[2001:DB8:0:0::1]:8000", "[2001:db8::1]:8000"),
        ("localhost:65535", "localhost:65535"),
    ],
)
def test_an_address_is_written_as_envoy_prints_it(text: str, address: str) -> None:
    """Whatever the spelling, the address compares equal to what Envoy reports upstream."""
    (engine,) = engines(text)
    assert engine == EngineAddress(address=address)


def test_metrics_pages() -> None:
    """An engine may name the URL of its page, a DNS name the path that holds for all it resolves to."""
    assert engines("h:1;metrics=https://[::1]:9/m?x=1&y=%20, dns:vllm.ns.svc:8000 ; metrics=/v1/metrics,dns:b:2") == (
        EngineAddress(address="h:1", metrics="https://[::1]:9/m?x=1&y=%20"),
        EngineAddress(address="vllm.ns.svc:8000", metrics="/v1/metrics", dns=True),
        EngineAddress(address="b:2", dns=True),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a:1,",
        "a",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:-1",
        "a:1:2",
        "a b:1",
        "-a:1",
        "a..b:1",
        "a" * 64 + ":1",
        "10.0.0.256:1",
        "10.0.0:1",
        "::1:1",
        "[::1]",
        "[::g]:1",
        "[fe80::1%eth0]:1",
        "[10.0.0.1]:1",
        "dns:a",
        "dns:10.0.0.1:1",
        "dns:[::1]:1",
        "dns:a:1;metrics=http://a/m",
        "a:1;metrics=/m",
        "a:1;metrics=",
        "a:1;",
        "a:1;metric=http://a/",
        "a:1;metrics=ftp://a/",
        "a:1;metrics=http:///",
        "a:1;metrics=http://u:p@a/",
        "a:1;metrics=http://a/ b",
        "a:1;metrics=http://a/\n",
        "a:1;metrics=http://a/;x",
        "a:1,a:1",
        "a:1,A:01",
        "http://a:1",
        "ä:1",
        "a:\u0661",
    ],
)
def test_what_is_not_an_engine_is_refused(text: str) -> None:
    """Nothing that could not be an upstream address passes, nor an address that is there twice."""
    with pytest.raises(ValueError):  # noqa: PT011 - the key words the error, not the reader
        engines(text)


def test_at_most_256_engines() -> None:
    """The list is bounded by itself, whatever bounds the text around it."""
    hosts = [f"h{number}:1" for number in range(ENGINES_MAX + 1)]
    assert len(engines(",".join(hosts[:ENGINES_MAX]))) == ENGINES_MAX
    with pytest.raises(ValueError, match="h256"):
        engines(",".join(hosts))
