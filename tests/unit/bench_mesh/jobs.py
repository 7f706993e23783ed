"""Jobs and tries to build figures from."""

from typing import Any

from bench.mesh.job import Job

from tidegate.sim.arrivals import Arrival
from tidegate.sim.record import End, Record
from tidegate.sim.report import Objective

OBJECTIVE = Objective(ttft_s=1.0, tpot_s=0.1)


def good(**changes: Any) -> Record:
    served: dict[str, Any] = {
        "tenant": "quiet", "at_s": 0.0, "end": End.COMPLETE, "status": 200, "ttft_s": 0.2, "tpot_s": 0.05, "tokens": 10,
    }  # fmt: skip
    return Record(**(served | changes))


def refused(status: int = 429, **changes: Any) -> Record:
    return good(**({"end": End.REFUSED, "status": status, "ttft_s": None, "tpot_s": None, "tokens": 0} | changes))


def left(waited_s: float) -> Record:
    return good(end=End.GAVE_UP_FIRST, ttft_s=None, tpot_s=None, tokens=0, e2e_s=waited_s)


def job(*tries: Record, at_s: float = 0.0, tenant: str = "quiet", cost_s: float = 1.0, cut: bool = False) -> Job:
    arrival = Arrival(at_s=at_s, tenant=tenant, prompt_tokens=10, completion_tokens=10, completion_tokens_max=20)
    return Job(arrival=arrival, tries=tries or (good(),), cost_s=cost_s, cut=cut)
