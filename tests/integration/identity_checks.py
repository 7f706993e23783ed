"""What a client may try so as to pass for somebody else, and who the service took each request to be from."""

import json
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping

from multidict import CIMultiDict

from tests.integration.puppet_stack import PuppetStack


def forging(tenant: str, credentials: Mapping[str, str] | None = None) -> CIMultiDict[str]:
    """A client's own credentials beside every header that could be taken for the word of the mesh."""
    payload = json.dumps({"sub": tenant}).encode()
    forged = [
        ("x-tenant", tenant),
        ("X-TENANT", tenant),
        ("X-Tenant", f"{tenant},{tenant}"),
        ("x-jwt-payload", urlsafe_b64encode(payload).rstrip(b"=").decode()),
        ("tidegate-tenant", tenant),
        ("Tidegate-Tenant", tenant),
        ("tidegate-tenant-bin", urlsafe_b64encode(tenant.encode()).decode()),
        ("tidegate-tenant-from", "header:x-mine"),
        ("tidegate-pool", "mine"),
        ("x-mine", tenant),
        ("x-tidegate-tenant", tenant),
        ("X-Tidegate-Tenant", tenant),
        ("grpc-metadata-tidegate-tenant", tenant),
        ("x-forwarded-client-cert", f"By=spiffe://mesh/gateway;Hash=00;URI={tenant}"),
        ("X-Forwarded-Client-Cert", f"URI={tenant}"),
        ("te", "trailers"),
    ]
    return CIMultiDict([*(credentials or {}).items(), *forged])


async def assert_told_apart(stack: PuppetStack, requests: Mapping[str, int]) -> None:
    """So many requests were of each tenant, and there were no others: by the log, and by Envoy's own counters.

    Names must be such that a label shows them as they are. The tenant of those that nobody named is empty.
    """
    lines = await stack.service.requests(sum(requests.values()))
    assert Counter(line.get("tenant", "") for line in lines) == requests
    assert {line["pool"] for line in lines} == {"engine"}
    for tenant, count in requests.items():
        series = f"admission.requests.tenant.{tenant}.model."
        await stack.until_counter(series, count)
        assert await stack.counter(series) == count
    assert await stack.counter("admission.requests.tenant.") == sum(requests.values())


async def assert_never_asked(stack: PuppetStack) -> None:
    """Envoy has not opened a single stream to the service, and the engine has met nobody."""
    assert await stack.counter("ext_proc.admission.streams_started") == 0
    assert stack.engine.calls == []
    assert stack.service.lines() == []
