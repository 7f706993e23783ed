"""Thousands of names that nobody knew before: they cost neither memory nor series, nor another tenant its own."""

import asyncio
from collections.abc import Sequence
from typing import Any

import psutil
import pytest
from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc

from tests.integration.conftest import RawServiceFactory
from tests.integration.metrics_page import Page, metrics
from tests.integration.raw_envoy import RawEnvoy, RawExchange
from tests.integration.running_service import RunningService

pytestmark = pytest.mark.envoy

POLICY = {"tidegate-slots-max": "1000", "tidegate-price-completion-usd": "1"}
LABELS_MAX, LABELS_UNPROVED_MAX = 64, 16
TENANTS = 4_500
"""More than any table of tenants holds: those of the queue and of the contracts hold 4,096."""
AT_ONCE = 20
GROWTH_BYTES_MAX = 6_000_000
"""For 4,500 tenants more, so 1.3 KB each; about a third of a kilobyte is seen while the last tables fill."""


class Crowd:
    """Requests of named tenants through the real service, a few at a time.

    Attributes:
        labels: that the service gave to Envoy for its stats.
    """

    def __init__(self, service: RunningService, envoy: RawEnvoy, *, answered: bool = True) -> None:
        self._channel = envoy._channel
        self._metadata = envoy._metadata
        self._envoy = envoy
        self._service = service
        self._answered = answered
        self.labels: set[str] = set()

    async def ask(self, tenants: Sequence[str]) -> None:
        """One request each, admitted and, where they are answered, settled."""
        for start in range(0, len(tenants), AT_ONCE):
            told = await asyncio.gather(*map(self._one, tenants[start : start + AT_ONCE]))
            self.labels.update(each["tenant"] for each in told)
            if self._answered:
                await self._envoy.log([completed(each) for each in told])

    async def page(self) -> Page:
        """The service's metrics, once all is given back."""
        await self._service.assert_sound()
        return await metrics(self._service.ops_url)

    def resident_bytes(self) -> int:
        """Memory of the service."""
        return psutil.Process(self._service.child.pid).memory_info().rss

    async def _one(self, tenant: str) -> dict[str, Any]:
        """What the service's metadata says of the request at last."""
        stub = pb_grpc.ExternalProcessorStub(self._channel)
        metadata = (*self._metadata, ("tidegate-tenant", tenant))
        exchange = RawExchange(stub.Process(metadata=metadata, timeout=20.0))
        await exchange.headers()
        told = dict((await exchange.reply()).dynamic_metadata["admission"])
        await exchange.body()
        told |= dict((await exchange.reply()).dynamic_metadata["admission"])
        assert told["decision"] == "admit", told
        await exchange.half_close()
        return told


def completed(told: dict[str, Any]) -> HTTPAccessLogEntry:
    """Envoy's entry for a request that the engine answered in full."""
    entry = HTTPAccessLogEntry()
    entry.response.response_code.value = 200
    spaces = entry.common_properties.metadata.filter_metadata
    spaces["admission"].update(told)
    spaces["usage"].update({"prompt_tokens": 8, "completion_tokens": 3})
    return entry


def tenants_on(page: Page) -> set[str]:
    """Tenants that have series."""
    return {labels["tenant"] for _, labels, _ in page.samples if "tenant" in labels}


def names(start: str, count: int = TENANTS) -> list[str]:
    """So many tenants that nobody knows, of the length of a workload's URI."""
    return [f"spiffe://cluster.example.org/ns/invented/sa/{start}-{number}" for number in range(count)]


async def test_tenants_without_number_are_bounded(raw_service: RawServiceFactory) -> None:
    """Past its tables, 4,500 tenants more, each with an answered request, add no series and next to no memory."""
    crowd = Crowd(*await raw_service(POLICY))
    await crowd.ask(names("early"))
    before, resident_bytes = await crowd.page(), crowd.resident_bytes()
    assert before.value("outcomes_total", ending="complete") == TENANTS
    assert len(tenants_on(before)) == LABELS_MAX + 1
    assert "other" in tenants_on(before)
    await crowd.ask(names("late"))
    after = await crowd.page()
    assert len(after.samples) == len(before.samples)
    assert tenants_on(after) == tenants_on(before)
    assert crowd.resident_bytes() - resident_bytes < GROWTH_BYTES_MAX


async def test_names_that_no_engine_answered_for_take_few_labels(raw_service: RawServiceFactory) -> None:
    """A flood of names without an answer fills 16 labels; a tenant that is answered still gets one of its own."""
    service, envoy = await raw_service(POLICY)
    flood = Crowd(service, envoy, answered=False)
    await flood.ask(names("flood", 500))
    assert len(flood.labels) == LABELS_UNPROVED_MAX + 1
    assert "other" in flood.labels
    honest = Crowd(service, envoy)
    await honest.ask(["acme"])
    await honest.ask(["acme"])
    assert honest.labels == {"other", "acme"}
    assert (await honest.page()).value("cost_usd_total", tenant="acme") == pytest.approx(0.006)
