"""Label values: bounded, clean, and one a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.tally import LabelSet

LONG = "spiffe://cluster.example.org/ns/inference-production/sa/chat-frontend"


@pytest.mark.parametrize(
    ("one", "other"),
    [(f"{LONG}-blue", f"{LONG}-green"), ("a b", "a_b"), ("a b", "a\tb"), ("other", "another"), ("é", "è")],
)
def test_two_names_never_share_a_label(one: str, other: str) -> None:
    """Names that are cut or cleaned alike are told apart by a digest."""
    labels = LabelSet()
    assert len({labels.label(one), labels.label(other), LabelSet.OTHER}) == 3


def test_a_plain_name_is_its_own_label() -> None:
    """What a label can hold stays as it is."""
    labels = LabelSet()
    assert labels.label("acme.example:eu/1-a_b@c") == "acme.example:eu/1-a_b@c"
    assert labels.label("") == ""


@given(names=st.lists(st.text(max_size=200), max_size=200), proved=st.sets(st.integers(0, 199)))
def test_labels_are_bounded_short_and_clean(names: list[str], proved: set[int]) -> None:
    """Whatever the names, at most 64 labels beside `other`, each of at most 64 plain characters."""
    labels = LabelSet()
    for number, name in enumerate(names):
        if number in proved:
            labels.prove(name)
    seen = {labels.label(name) for name in names}
    assert len(seen - {LabelSet.OTHER, ""}) <= 64
    assert all(len(label) <= 64 and label.isascii() for label in seen)
