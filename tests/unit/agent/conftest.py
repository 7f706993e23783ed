"""Pretended GPU nodes."""

from pathlib import Path

import pytest

from tests.unit.agent.fake_nvml import NO_COMPILER, Node, build, compiler


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a library that has everything."""
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def node(tmp_path: Path, library: Path) -> Node:
    """A node with one healthy GPU."""
    return Node(tmp_path, library)
