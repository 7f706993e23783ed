"""What engines say of themselves, as series."""

from prometheus_client import CollectorRegistry, generate_latest

from tidegate.admission.reading import EngineReading
from tidegate.telemetry.engine_figures import EngineCollector, EngineFigures, PoolSignals

SAID = EngineReading(running=3, kv_usage=0.25, preemptions_total=7.0, ready=False)


def page(*engines: EngineFigures) -> list[str]:
    signals = PoolSignals(engines=engines, polls={"read": 5, "timeout": 0}, lookups={"empty": 2}, names_failing=1)
    registry = CollectorRegistry()
    registry.register(EngineCollector(lambda: {"p": signals}))
    return generate_latest(registry).decode().splitlines()


def test_an_engine_is_shown_as_it_says() -> None:
    """Each figure it tells is a series, a figure that it does not tell is none."""
    lines = page(EngineFigures(address="10.0.0.1:8000", reading=SAID, age_s=0.5))
    labels = '{engine="10.0.0.1:8000",pool="p"}'
    for name, value in {
        "running": "3.0",
        "kv_usage": "0.25",
        "ready": "0.0",
        "preemptions_total": "7.0",
        "reading_age_seconds": "0.5",
    }.items():
        assert f"tidegate_engine_{name}{labels} {value}" in lines
    assert not [line for line in lines if "tidegate_engine_waiting{" in line or "memory_free_mib{" in line]


def test_an_engine_that_was_never_read_has_an_age_alone() -> None:
    """So it shows that it is asked, and for how long in vain."""
    lines = page(EngineFigures(address="a:1", reading=None, age_s=60.0))
    assert [line for line in lines if 'engine="a:1"' in line] == [
        'tidegate_engine_reading_age_seconds{engine="a:1",pool="p"} 60.0'
    ]


def test_polls_and_lookups_are_counted_by_end() -> None:
    """Those that never happened stand at 0, and names without an answer are a gauge."""
    lines = page()
    for line in (
        'tidegate_polls_total{end="read",pool="p"} 5.0',
        'tidegate_polls_total{end="timeout",pool="p"} 0.0',
        'tidegate_lookups_total{end="empty",pool="p"} 2.0',
        'tidegate_pool_names_failing{pool="p"} 1.0',
    ):
        assert line in lines
