"""The benchmark's adapter: OpenAI's dicts in, figures out."""

from pathlib import Path

import pytest
from bench.estimator.adapter import Adapter, facts_of

from tidegate_estimator import Message

BODY = {"tenant": "acme", "model": "m", "messages": [{"role": "user", "content": "Write a haiku."}]}


def test_a_plain_body_reads_as_the_dialect_reads_it() -> None:
    """The short way and the service's own give one request."""
    short = facts_of(BODY | {"max_tokens": 30, "temperature": 0.5})
    assert short == facts_of(BODY | {"max_tokens": 30, "temperature": 0.5, "n": 1})
    assert short.messages == (Message(role="user", text="Write a haiku."),)


def test_other_bodies_go_through_the_dialect() -> None:
    """Parts, n and max_completion_tokens are facts, too."""
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    facts = facts_of(BODY | parts | {"n": 3, "max_completion_tokens": 9})
    assert (facts.tenant, facts.sequences, facts.max_tokens, facts.messages[0].text) == ("acme", 3, 9, "Hi")


def test_it_learns_saves_and_loads(tmp_path: Path) -> None:
    """What was observed is predicted, also by the one that loads it; a damaged file is refused."""
    adapter, path = Adapter(), tmp_path / "model"
    for _ in range(60):
        adapter.observe(adapter.predict(BODY).ticket, 17, "stop")
    assert adapter.predict(BODY).p50 == pytest.approx(17, rel=0.15)
    adapter.save(str(path))
    assert Adapter.load(str(path)).predict(BODY).p90 == pytest.approx(adapter.predict(BODY).p90, rel=0.01)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="estimator state"):
        Adapter.load(str(path))
