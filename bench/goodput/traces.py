"""The recorded traces: when requests came, how long they and their answers were.

DATA/traces/NAME.csv.gz    ts, prompt_tokens, completion_tokens, model, tenant; one request a line, in order of time
"""

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpec:
    """A trace and how it is used.

    Attributes:
        file: its name under DATA/traces.
        load_1_per_s: requests a second that are load 1 on one llama-70b-4xh100: the highest rate of Poisson arrivals
            at which 95 % of the requests meet their objectives without any control.
        context_tokens_max: longer requests, prompt and answer together, are left out.
        grid_s: the trace's stamps are multiples of this; those of one stamp are spread evenly until the next.
        whole_timeout_s: when a client gives up on an answer that is under way.
        warmup_s, window_s: of a run, so that it holds enough requests and the longest answers reach a steady state.
    """

    file: str
    load_1_per_s: float
    context_tokens_max: int = 1_000_000
    grid_s: float = 0.0
    whole_timeout_s: float = 120.0
    warmup_s: float = 60.0
    window_s: float = 180.0


TRACES = {
    "chat": TraceSpec(file="azure2023_conv", load_1_per_s=8.49),
    "code": TraceSpec(file="azure2023_code", load_1_per_s=5.68, window_s=270.0),
    "mooncake": TraceSpec(
        file="mooncake_conversation",
        load_1_per_s=0.628,
        context_tokens_max=32_768,
        grid_s=3.0,
        warmup_s=120.0,
        window_s=600.0,
    ),
    "r1": TraceSpec(
        file="servegen_deepseek_r1", load_1_per_s=5.94, whole_timeout_s=900.0, warmup_s=120.0, window_s=300.0
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Columns of one length: seconds since the first request, and tokens."""

    at_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    completion_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at_s)

    def rows(self, index: NDArray[np.int64]) -> "Trace":
        """Some of the requests, in the order of `index`."""
        return Trace(
            at_s=self.at_s[index],
            prompt_tokens=self.prompt_tokens[index],
            completion_tokens=self.completion_tokens[index],
        )


def trace_path(name: str, data: Path = DATA) -> Path:
    """Where the trace lies."""
    return data / "traces" / f"{TRACES[name].file}.csv.gz"


@cache
def read_trace(name: str, data: Path = DATA) -> Trace:
    """The trace without the requests that are too long; FileNotFoundError where it is absent."""
    spec = TRACES[name]
    with gzip.open(trace_path(name, data), "rt", encoding="utf8", newline="") as lines:
        rows = [
            (float(row["ts"]), int(row["prompt_tokens"]), int(row["completion_tokens"]))
            for row in csv.DictReader(lines)
        ]
    kept = [row for row in rows if row[1] + row[2] <= spec.context_tokens_max and row[1] > 0 and row[2] > 0]
    at_s, prompt_tokens, completion_tokens = zip(*kept, strict=True)
    return Trace(
        at_s=_spread_s(np.array(at_s, dtype=np.float64), spec.grid_s),
        prompt_tokens=np.array(prompt_tokens, dtype=np.int64),
        completion_tokens=np.array(completion_tokens, dtype=np.int64),
    )


def _spread_s(at_s: NDArray[np.float64], grid_s: float) -> NDArray[np.float64]:
    """Stamps of a coarse clock, spread evenly over its ticks."""
    if grid_s == 0.0:
        return at_s
    tick, index, counts = np.unique(np.round(at_s / grid_s), return_inverse=True, return_counts=True)
    place = np.arange(len(at_s)) - np.repeat(np.cumsum(counts) - counts, counts)
    spread: NDArray[np.float64] = (tick[index] + place / counts[index]) * grid_s
    return spread
