"""Tells the log what has changed since it last told; a GPU that comes and goes every look tells it no more often."""

import logging
from collections.abc import Mapping

from tidegate.agent.records import GPU_HELP, NODE_HELP, GpuState, NodeState, Sample

EVERY_S = 10.0
_NODE_FINE = frozenset({NodeState.OK, NodeState.STARTING})
_GPU_FINE = frozenset({GpuState.OK, GpuState.UTILISATION_NOT_SUPPORTED})


class Changes:
    """What was told of the node and of each GPU; lines at most every ten seconds, the first at once."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._node: NodeState | None = None
        self._gpus: Mapping[str, GpuState] = {}
        self._told_s = float("-inf")

    def tell(self, sample: Sample, now_s: float) -> None:
        """One line for the node and one for each GPU that is in another state than was told; `now_s` of any origin."""
        gpus = {gpu.label: gpu.state for gpu in sample.gpus}
        if (sample.state is self._node and gpus == self._gpus) or now_s - self._told_s < EVERY_S:
            return
        if sample.state is not self._node:
            level = logging.INFO if sample.state in _NODE_FINE else logging.WARNING
            detail, help_text = _said(sample.detail), NODE_HELP[sample.state]
            self._log.log(level, "node is %s: %s%s", sample.state, help_text, detail)
        for gpu in sample.gpus:
            if gpu.state is not self._gpus.get(gpu.label):
                level = logging.INFO if gpu.state in _GPU_FINE else logging.WARNING
                which, detail = f"{gpu.label} {gpu.uuid}".strip(), _said(gpu.detail)
                self._log.log(level, "GPU %s is %s: %s%s", which, gpu.state, GPU_HELP[gpu.state], detail)
        for label in self._gpus.keys() - gpus.keys():
            if sample.state is NodeState.OK:
                self._log.warning("GPU %s is not there any more", label)
        self._node, self._gpus, self._told_s = sample.state, gpus, now_s


def _said(detail: str) -> str:
    return f" ({detail})" if detail else ""
