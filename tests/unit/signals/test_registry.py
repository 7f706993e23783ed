"""Which reader a kind has."""

import pytest

from tests.unit.signals.pages import GOLDEN, MAPPING
from tidegate.policy.keys import ENGINE_KINDS
from tidegate.signals.registry import KINDS, reader_of


def test_every_kind_of_the_policy_has_its_reader() -> None:
    """What `tidegate-engine` takes can be read, and there is a page of each to show it; our own agent's is written in
    the tests of its reader.
    """
    assert sorted(KINDS) == sorted(ENGINE_KINDS)
    assert {golden.kind for golden in GOLDEN} | {"gpu-agent"} == set(KINDS)
    for kind in KINDS:
        reader = reader_of(kind, MAPPING if kind == "prometheus" else None)
        assert reader.kind == kind
        assert reader.path.startswith("/")


@pytest.mark.parametrize(
    ("kind", "mapping", "message"),
    [
        ("vllm", MAPPING, "vllm takes no mapping"),
        ("prometheus", None, "prometheus needs a mapping"),
        ("prometheus", "", "form"),
        ("x", None, "no reader of 'x'"),
    ],
)
def test_a_kind_or_a_mapping_that_does_not_fit_is_refused(kind: str, mapping: str | None, message: str) -> None:
    """The policy words the error; here it is a ValueError."""
    with pytest.raises(ValueError, match=message):
        reader_of(kind, mapping)
