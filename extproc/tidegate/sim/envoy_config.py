"""The shipped Envoy configuration with other ports, engines and policy: tests and the demo run what users get."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

Config = dict[str, Any]
"""An Envoy bootstrap as YAML gives it: nested mappings and lists."""

FILTER_NAME = "tidegate"
ENGINE_CLUSTER = "engine"
EXT_PROC_CLUSTER = "ext_proc"
GATEWAY_LISTENER = "gateway"


def shipped_template() -> Path:
    """Where envoy.yaml lies: beside this file in an installed package, under `envoy/` in a checkout.

    Raises:
        FileNotFoundError: in neither place.
    """
    here = Path(__file__).resolve()
    for path in (here.with_name("envoy.yaml"), here.parents[3] / "envoy" / "envoy.yaml"):
        if path.is_file():
            return path
    raise FileNotFoundError("envoy.yaml lies neither in the package nor in the checkout around it")


def render_envoy(
    template: Path,
    *,
    gateway_port: int,
    admin_port: int,
    ext_proc_port: int,
    engines: Sequence[str],
    policy: Mapping[str, str | None] | None = None,
    edit: Callable[[Config], None] | None = None,
) -> str:
    """The template on 127.0.0.1 with these ports and engines, as YAML text.

    Args:
        engines: serving addresses, `HOST:PORT` with HOST an IP address.
        policy: `tidegate-*` keys to set in the filter's initial metadata; None takes a key out.
        edit: a last change to the whole configuration, in place.
    """
    # Through JSON, so that parts shared by a YAML anchor become copies: an edit of one route must not reach the others.
    config: Config = json.loads(json.dumps(yaml.safe_load(template.read_text())))
    config["admin"]["address"] = _address("127.0.0.1", admin_port)
    listener(config, GATEWAY_LISTENER)["address"] = _address("127.0.0.1", gateway_port)
    _point_cluster(config, EXT_PROC_CLUSTER, [f"127.0.0.1:{ext_proc_port}"])
    _point_cluster(config, ENGINE_CLUSTER, engines)
    set_policy(config, policy or {})
    if edit is not None:
        edit(config)
    return yaml.safe_dump(config, sort_keys=False, width=120)


def set_policy(config: Config, policy: Mapping[str, str | None]) -> None:
    """Set `tidegate-*` keys in the filter's initial metadata, in place; None takes a key out."""
    service = ext_proc_filter(config)["grpc_service"]
    keys = {each["key"]: each["value"] for each in service.get("initial_metadata", [])} | dict(policy)
    service["initial_metadata"] = [{"key": key, "value": value} for key, value in keys.items() if value is not None]


def listener(config: Config, name: str) -> Config:
    """The listener of that name. Raises KeyError."""
    return _named(config["static_resources"]["listeners"], name)


def cluster(config: Config, name: str) -> Config:
    """The cluster of that name. Raises KeyError."""
    return _named(config["static_resources"]["clusters"], name)


def connection_manager(config: Config) -> Config:
    """The gateway's HTTP connection manager, its typed configuration."""
    filters = listener(config, GATEWAY_LISTENER)["filter_chains"][0]["filters"]
    found: Config = _named(filters, "envoy.filters.network.http_connection_manager")["typed_config"]
    return found


def ext_proc_filter(config: Config) -> Config:
    """Tidegate's ext_proc filter, its typed configuration."""
    found: Config = _named(connection_manager(config)["http_filters"], FILTER_NAME)["typed_config"]
    return found


def routes(config: Config) -> Iterator[Config]:
    """Every route of the gateway, in order."""
    for host in connection_manager(config)["route_config"]["virtual_hosts"]:
        yield from host["routes"]


def _point_cluster(config: Config, name: str, addresses: Sequence[str]) -> None:
    endpoints = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        endpoints.append({"endpoint": {"address": _address(host, int(port))}})
    cluster(config, name)["load_assignment"]["endpoints"] = [{"lb_endpoints": endpoints}]


def _address(host: str, port: int) -> Config:
    return {"socket_address": {"address": host, "port_value": port}}


def _named(items: Sequence[Config], name: str) -> Config:
    for item in items:
        if item["name"] == name:
            return item
    raise KeyError(f"{name!r} is not among {[item['name'] for item in items]}")
