"""Tidegate's metrics page, as tests read it."""

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.stack import WAIT_S_MAX, eventually


@dataclass(frozen=True, slots=True)
class Page:
    """The page, parsed: `(sample name, labels, value)`."""

    samples: tuple[tuple[str, Mapping[str, str], float], ...]

    def value(self, name: str, **labels: str) -> float:
        """The sum of every sample of `tidegate_NAME` that carries these labels."""
        return sum(
            value
            for sample, carried, value in self.samples
            if sample == f"tidegate_{name}" and labels.items() <= carried.items()
        )


async def metrics(ops_url: str) -> Page:
    """Scrape tidegate; fails where the page is not in Prometheus's format."""
    async with aiohttp.ClientSession() as session, session.get(f"{ops_url}/metrics") as response:
        assert response.status == 200
        text = await response.text()
    families = text_string_to_metric_families(text)
    return Page(tuple((each.name, each.labels, each.value) for family in families for each in family.samples))


async def until_metric(
    ops_url: str, name: str, figure: float, *, wait_s_max: float = WAIT_S_MAX, **labels: str
) -> None:
    """Wait until a metric (see `Page.value`) has exactly this value."""

    async def read() -> float:
        return (await metrics(ops_url)).value(name, **labels)

    what = f"{name}{labels or ''} == {figure:g}"
    await eventually(read, lambda value: bool(value == figure), what=what, wait_s_max=wait_s_max)
