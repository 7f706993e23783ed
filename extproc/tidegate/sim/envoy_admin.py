"""A client of Envoy's admin interface: stats, runtime, logs."""

from types import TracebackType
from typing import Self

import aiohttp


class AdminClient:
    """One Envoy's admin interface on 127.0.0.1; an async context manager."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._session.close()

    async def stats(self, pattern: str = "") -> dict[str, int]:
        """Counters and gauges whose full name (tags and all) matches the regular expression; all where it is empty."""
        params = {"filter": pattern} if pattern else {}
        async with self._session.get(f"{self._base}/stats", params=params) as response:
            response.raise_for_status()
            return _whole_numbers(await response.text())

    async def prometheus(self) -> str:
        """Every stat in Prometheus's text format; histograms as of the last flush."""
        async with self._session.get(f"{self._base}/stats/prometheus") as response:
            response.raise_for_status()
            return await response.text()

    async def runtime_modify(self, **values: str) -> None:
        """Set runtime keys in the admin layer; an empty value takes one out. Dots in a key need `**{...}`."""
        await self._post("/runtime_modify", values)

    async def reset_counters(self) -> None:
        """Set every counter to zero."""
        await self._post("/reset_counters", {})

    async def _post(self, path: str, params: dict[str, str]) -> None:
        async with self._session.post(self._base + path, params=params) as response:
            response.raise_for_status()


def _whole_numbers(text: str) -> dict[str, int]:
    """The `name: value` lines whose value is a whole number; histograms and text readouts are left out."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(": ")
        if value.isdecimal():
            found[name] = int(value)
    return found
