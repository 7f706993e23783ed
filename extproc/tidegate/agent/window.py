"""Percentiles over a sliding window, by nearest rank:  p-th = least x with  #(samples <= x) >= p * #samples.

NVML tells utilisation as a whole percentage, so a hundred and one counters hold the distribution exactly: a sample that
comes counts up, one that leaves counts down, and a percentile is one walk over them, whatever the window's length. Why
a distribution at all: NVML's figure is already a mean over up to a second, and a mean of means hides that a GPU is full
half of the time and idle the other half, which is what a queue in front of it feels.

Source: nearest rank as in Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996), definition 1.
"""

from collections import deque

from tidegate.agent.records import Utilisation

PERCENT_MAX = 100


class Window:
    """Whole percentages of the last `window_s` seconds.

    Args:
        window_s: age at which a sample leaves, in seconds.
        samples_max: the oldest leave first above this many.
    """

    __slots__ = ("_counts", "_samples", "_samples_max", "_window_s")

    def __init__(self, window_s: float, samples_max: int) -> None:
        self._window_s = window_s
        self._samples_max = samples_max
        self._samples: deque[tuple[float, int]] = deque()
        self._counts = [0] * (PERCENT_MAX + 1)

    def add(self, percent: int, now_s: float) -> None:
        """Take in one sample of 0 to 100 per cent; `now_s` never goes back."""
        assert 0 <= percent <= PERCENT_MAX, percent
        self._samples.append((now_s, percent))
        self._counts[percent] += 1
        while self._samples[0][0] <= now_s - self._window_s or len(self._samples) > self._samples_max:
            _, left = self._samples.popleft()
            self._counts[left] -= 1

    def utilisation(self) -> Utilisation | None:
        """The distribution as of the last sample; None before there is one."""
        if not self._samples:
            return None
        return Utilisation(
            last=self._samples[-1][1] / PERCENT_MAX,
            p50=self._percentile(50) / PERCENT_MAX,
            p95=self._percentile(95) / PERCENT_MAX,
            samples=len(self._samples),
        )

    def _percentile(self, percentage: int) -> int:
        rank = -(-percentage * len(self._samples) // 100)  # rounded up, in whole numbers
        seen = 0
        for percent, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return percent
        raise AssertionError("the counters hold fewer samples than the window")
