"""Rendering the shipped Envoy configuration with other ports, engines and policy."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tidegate.sim.envoy_config import (
    Config,
    cluster,
    connection_manager,
    ext_proc_filter,
    listener,
    render_envoy,
    routes,
    shipped_template,
)


def render(
    policy: dict[str, str | None] | None = None,
    edit: Callable[[Config], None] | None = None,
    engines: tuple[str, ...] = ("127.0.0.1:4",),
) -> Config:
    text = render_envoy(
        shipped_template(), gateway_port=1, admin_port=2, ext_proc_port=3, engines=engines, policy=policy, edit=edit
    )
    config: Config = yaml.safe_load(text)
    return config


def ports(config: Config, name: str) -> list[tuple[str, int]]:
    endpoints = cluster(config, name)["load_assignment"]["endpoints"][0]["lb_endpoints"]
    addresses = [each["endpoint"]["address"]["socket_address"] for each in endpoints]
    return [(each["address"], each["port_value"]) for each in addresses]


def test_addresses_are_replaced_by_name() -> None:
    """Gateway, admin, service and every engine get their addresses, all on loopback."""
    config = render(engines=("127.0.0.1:4", "10.0.0.1:5"))
    loopback: dict[str, Any] = {"address": "127.0.0.1"}
    assert config["admin"]["address"]["socket_address"] == loopback | {"port_value": 2}
    assert listener(config, "gateway")["address"]["socket_address"] == loopback | {"port_value": 1}
    assert ports(config, "ext_proc") == [("127.0.0.1", 3)]
    assert ports(config, "engine") == [("127.0.0.1", 4), ("10.0.0.1", 5)]


def test_policy_keys_are_set_added_and_taken_out() -> None:
    """A key that exists is replaced, a new one joins, None takes one out, and the rest stays."""
    config = render({"tidegate-slots-max": "4", "tidegate-shadow": "on", "tidegate-hold-ms-max": None})
    keys = {each["key"]: each["value"] for each in ext_proc_filter(config)["grpc_service"]["initial_metadata"]}
    assert keys["tidegate-slots-max"] == "4"
    assert keys["tidegate-shadow"] == "on"
    assert "tidegate-hold-ms-max" not in keys
    assert keys["tidegate-pool"] == "engine"


def test_an_edit_of_one_route_leaves_the_others_alone() -> None:
    """Parts that the file shares through anchors are separate in the rendered configuration."""

    def edit(config: Config) -> None:
        next(each for each in routes(config) if each["name"] == "inference-openai")["route"]["timeout"] = "1s"

    timeouts = {each["name"]: each["route"].get("timeout") for each in routes(render(edit=edit))}
    assert timeouts["inference-openai"] == "1s"
    assert timeouts["inference-engine"] == timeouts["bypass"] == "600s"


def test_unknown_names_are_errors() -> None:
    """A cluster that is not there is a KeyError that lists those that are."""
    with pytest.raises(KeyError, match="ext_proc"):
        cluster(render(), "nowhere")


def test_the_file_repeats_its_timeouts_in_the_policy() -> None:
    """The keys that repeat the filter's timeouts agree with them, and a hold fits into the longest timeout."""
    config = render()
    settings = ext_proc_filter(config)
    keys = {each["key"]: each["value"] for each in settings["grpc_service"]["initial_metadata"]}
    assert float(settings["message_timeout"].rstrip("s")) * 1000 == float(keys["tidegate-message-timeout-ms"])
    assert float(keys["tidegate-hold-ms-max"]) < float(settings["max_message_timeout"].rstrip("s")) * 1000
    idle_s = float(connection_manager(config)["stream_idle_timeout"].rstrip("s"))
    assert idle_s > float(settings["max_message_timeout"].rstrip("s"))


def test_the_backstop_lies_a_quarter_above_the_service() -> None:
    """The engine cluster's breaker is 20 to 30 % above the slots that learning starts from and the queue's places."""
    config = render()
    keys = {each["key"]: each["value"] for each in ext_proc_filter(config)["grpc_service"]["initial_metadata"]}
    assert "tidegate-slots-max" not in keys
    own = 256 + int(keys["tidegate-queue-len-max"])
    threshold = cluster(config, "engine")["circuit_breakers"]["thresholds"][0]
    assert 1.2 <= threshold["max_requests"] / own <= 1.3
    assert threshold["max_connections"] >= threshold["max_requests"]
