"""What all tests share."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.recorded import NO_TRACES

# Shared machines are noisy: how long an example takes says nothing about the code. A gate must judge the change and not
# the dice, so there the examples are fixed; everywhere else they are new each time.
settings.register_profile(
    "tidegate", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("tidegate")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails, but for want of traces")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("--no-skips") or reporter is None:
        return
    if any(NO_TRACES not in str(report.longrepr) for report in reporter.stats.get("skipped", ())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
