"""Every contender's Envoy configuration is one that the real Envoy takes, and does what its name says."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from bench.mesh import scenes
from bench.mesh.contenders import Contender, Name, contender
from bench.mesh.parts import BREAKER_MAX, rendered

from tidegate.policy.parse import parse_policy
from tidegate.sim.envoy_config import cluster, connection_manager, ext_proc_filter
from tidegate.sim.launch import envoy_binary
from tidegate.sim.stack import BYPASS_KEY, Ports

PORTS = Ports(gateway=10001, admin=10002, grpc=10003, ops=10004, engine=10005)
NATIVE = {Name.ADMISSION_CONTROL, Name.ADAPTIVE_CONCURRENCY, Name.LOCAL_RATELIMIT}


def of(name: Name) -> Contender:
    return contender(name, load_1_per_s=33.3, engine_address="127.0.0.1:10005")


@pytest.mark.envoy
@pytest.mark.parametrize("name", list(Name))
def test_envoy_takes_the_configuration(name: Name, tmp_path: Path) -> None:
    """Unknown fields and values out of bounds are errors of the filter, seen before anything runs."""
    path = tmp_path / "envoy.yaml"
    path.write_text(rendered(of(name), PORTS))
    command = [str(envoy_binary()), "--mode", "validate", "--config-path", str(path), "--log-level", "error"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", list(Name))
def test_only_the_contender_limits(name: Name) -> None:
    """No breaker binds; the service is asked by its own contenders alone; a native filter stands before the router."""
    config = json.loads(json.dumps(yaml.safe_load(rendered(of(name), PORTS))))
    (threshold,) = cluster(config, "engine")["circuit_breakers"]["thresholds"]
    assert threshold["max_requests"] == BREAKER_MAX
    (static,) = [each for each in config["layered_runtime"]["layers"] if "static_layer" in each]
    asked = name in {Name.P99_WINDOW, Name.TIDEGATE, Name.TIDEGATE_STATED}
    assert static["static_layer"][BYPASS_KEY] == (0 if asked else 100)
    filters = [each["name"] for each in connection_manager(config)["http_filters"]]
    assert filters[-1] == "envoy.filters.http.router"
    assert (filters[-2] == f"envoy.filters.http.{name}") is (name in NATIVE)


@pytest.mark.parametrize("name", [Name.P99_WINDOW, Name.TIDEGATE, Name.TIDEGATE_STATED])
def test_the_policy_has_no_mistake(name: Name) -> None:
    """Every key that is sent is known and its value read: a mistake would leave the defaults in force, silently."""
    config = yaml.safe_load(rendered(of(name), PORTS))
    sent = {each["key"]: each["value"] for each in ext_proc_filter(config)["grpc_service"]["initial_metadata"]}
    policy = parse_policy(sent.items(), default_pool="engine")
    assert policy.request.ttft_budget_s == scenes.OBJECTIVE.ttft_s
    assert policy.request.tpot_target_s == scenes.OBJECTIVE.tpot_s
