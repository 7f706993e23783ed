"""A model of NVIDIA Triton that takes as long as its input says: `python triton_program.py HTTP GRPC METRICS` ports.

Runs in the environment that has nvidia-pytriton. One instance, no batches: one request at a time.
"""

import sys
import time
from typing import Any

import numpy as np
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


def nap(requests: list[Any]) -> list[dict[str, Any]]:
    """Sleep for as many seconds as the only element of SECONDS, and say so."""
    answers = []
    for request in requests:
        seconds = request["SECONDS"]
        time.sleep(float(seconds[0]))
        answers.append({"SLEPT": seconds})
    return answers


def main(arguments: list[str]) -> None:
    """Serve until told to end."""
    http, grpc, metrics = (int(each) for each in arguments)
    config = TritonConfig(
        http_address="127.0.0.1", http_port=http, grpc_address="127.0.0.1", grpc_port=grpc,
        metrics_address="127.0.0.1", metrics_port=metrics, metrics_interval_ms=100,
        allow_gpu_metrics=False, allow_sagemaker=False, allow_vertex_ai=False,
    )  # fmt: skip
    with Triton(config=config) as triton:
        triton.bind(
            model_name="nap",
            infer_func=nap,
            inputs=[Tensor(name="SECONDS", dtype=np.float32, shape=(1,))],
            outputs=[Tensor(name="SLEPT", dtype=np.float32, shape=(1,))],
            config=ModelConfig(batching=False),
        )
        triton.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
