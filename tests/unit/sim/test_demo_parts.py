"""The parts of the demo that need no process: capacity, phases, Envoy's page, the table, the verdict void."""

import json
import socket
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tidegate.errors import OperatorError
from tidegate.sim import scenario
from tidegate.sim.arrivals import Lengths, TenantLoad
from tidegate.sim.capacity import capacity_per_s
from tidegate.sim.demo import void_reasons
from tidegate.sim.envoy_report import LINES_MAX, lines_about_decisions, requests_by_decision
from tidegate.sim.profiles import PROFILES
from tidegate.sim.record import End, Record
from tidegate.sim.report import Control, RunResult, figures_of
from tidegate.sim.report_table import data_of, table_of
from tidegate.sim.stack import Ports, Setup, policy_of
from tidegate.sim.up import require_free

PAGE = """# TYPE envoy_admission_requests counter
envoy_admission_requests{tenant="a",model="m",decision="admit"} 3
envoy_admission_requests{tenant="b",model="m",decision="admit"} 4
envoy_admission_requests{tenant="b",model="",decision="reject"} 5
envoy_admission_requests_total_of_something_else{decision="admit"} 99
# TYPE envoy_http_ext_proc_streams_started counter
envoy_http_ext_proc_streams_started{envoy_http_conn_manager_prefix="gateway"} 12
envoy_server_uptime{} 7
"""


def run_of(control: Control, **changes: object) -> RunResult:
    records = [
        Record(tenant=scenario.QUIET, at_s=0.0, end=End.COMPLETE, status=200, ttft_s=0.2, tpot_s=0.02, tokens=9),
        Record(tenant=scenario.BUSY, at_s=0.1, end=End.GAVE_UP_FIRST, e2e_s=5.0),
    ]
    figures = figures_of(records, scenario.OBJECTIVE, duration_s=1.0, quiet_tenant=scenario.QUIET)
    run = RunResult(
        phase="normal",
        control=control,
        figures=figures,
        tokens_generated=9,
        tokens_wasted=2,
        prompt_tokens_wasted=40,
        preemptions=0,
        envoy_requests={"admit": 1},
        cores=0.5,
    )
    return replace(run, **changes)  # type: ignore[arg-type]


def mix(prompt: int, answer: int) -> tuple[TenantLoad, ...]:
    fixed_prompt, fixed_answer = (Lengths(median=tokens, sigma=0.0, low=1, high=4000) for tokens in (prompt, answer))
    return (TenantLoad(name="a", rate_per_s=1.0, prompt_tokens=fixed_prompt, completion_tokens=fixed_answer),)


def test_capacity_is_what_the_slots_allow_where_slots_bind() -> None:
    """Tiny prompts, memory to spare: sequences at once over the time of one answer at a full batch's pace."""
    profile = PROFILES["demo"].resized(kv_tokens=100_000)
    step_s = profile.cost.seconds(profile.slots, profile.slots * 60, 0.0)
    assert capacity_per_s(profile, mix(4, 100)) == pytest.approx(profile.slots / (100 * step_s), rel=0.1)


def test_capacity_falls_with_longer_answers_and_rises_with_pace() -> None:
    """It is the engine's own, in its own time."""
    demo = PROFILES["demo"]
    assert capacity_per_s(demo, mix(50, 100)) < 0.7 * capacity_per_s(demo, mix(50, 50))
    assert capacity_per_s(demo.slowed(0.5), mix(50, 50)) == pytest.approx(2 * capacity_per_s(demo, mix(50, 50)))


def test_a_mix_without_requests_has_no_capacity() -> None:
    """A mistake in a scenario is an error, not a division by zero."""
    with pytest.raises(ValueError, match="mix"):
        capacity_per_s(PROFILES["demo"], ())


def test_the_phases_are_relative_to_capacity() -> None:
    """Below it, twice it, and a flood of twice it on top of a light load."""
    normal, overload, flood = scenario.phases(10.0)
    rates = [sum(tenant.rate_per_s for tenant in phase.tenants) for phase in (normal, overload, flood)]
    assert rates == pytest.approx([6.0, 20.0, 24.0])
    assert {tenant.name: tenant.rate_per_s for tenant in flood.tenants}[scenario.QUIET] == pytest.approx(2.0)


def test_the_policy_tells_what_the_engine_is() -> None:
    """Capacity and objectives reach the service in its own units: tokens and milliseconds."""
    setup = Setup(engine=PROFILES["demo"], time_scale=0.5, seed=1, objective=scenario.OBJECTIVE, client_timeout_s=60.0)
    policy = policy_of(setup)
    assert policy["tidegate-slots-max"] == "16"
    assert policy["tidegate-ttft-budget-ms"] == "1000"
    assert policy["tidegate-client-timeout-ms"] == "60000"


def test_envoy_s_decisions_are_summed_over_tenants() -> None:
    """Only the series of that very name count, by their decision."""
    assert requests_by_decision(PAGE) == {"admit": 7, "reject": 5}


def test_envoy_s_lines_are_shown_as_they_stand() -> None:
    """The lines are the page's own, those about decisions only, and never more than a screen of them."""
    lines = lines_about_decisions(PAGE)
    assert len(lines) == 4
    assert all(line in PAGE.splitlines() for line in lines)
    many = "".join(f'envoy_admission_requests{{tenant="{n}",decision="admit"}} 1\n' for n in range(500))
    assert len(lines_about_decisions(many)) == LINES_MAX


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    """A newcomer's terminal is narrow: nothing is cut off there."""
    runs = [run_of(control, phase=phase.name) for phase in scenario.phases(10.0) for control in Control]
    console = Console(width=80, file=StringIO())
    console.print(table_of(runs, {phase.name: phase.title for phase in scenario.phases(10.0)}))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert ">5.00" in text
    assert "42" in text
    assert "failed or unfinished" not in text


def test_failed_requests_get_a_row_of_their_own() -> None:
    """What nobody planned is not hidden."""
    run = run_of(Control.WITH)
    table = table_of([replace(run, figures=replace(run.figures, broken=3))], {"normal": "normal load"})
    assert table.row_count == 13


def test_all_figures_go_into_json() -> None:
    """The data survive a round trip and keep their precision."""
    (data,) = json.loads(json.dumps(data_of([run_of(Control.WITHOUT)])))
    assert data["control"] == "without"
    assert data["figures"]["ttft_p99"] == {"value_s": 5.0, "lower_bound": True}
    assert data["envoy_requests"] == {"admit": 1}


def test_a_run_on_too_much_processor_time_is_void() -> None:
    """More than 1.6 cores, or requests sent late: the figures say nothing about admission."""
    run = run_of(Control.WITH)
    assert void_reasons([run]) == []
    assert "1.70 cores" in void_reasons([run, replace(run, cores=1.7)])[0]
    assert "late" in void_reasons([replace(run, figures=replace(run.figures, late_p99_s=0.4))])[0]


def test_a_taken_port_is_named() -> None:
    """Who starts the stack learns which port is taken and what it is for."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = replace(Ports.free(), admin=taken.getsockname()[1])
        with pytest.raises(OperatorError, match=rf"port {ports.admin} \(admin\)"):
            require_free(ports)
    require_free(ports)
