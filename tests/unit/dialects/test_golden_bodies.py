"""Request bodies of every kind and the facts each must yield (tests/data/dialects)."""

import json
from pathlib import Path

import pytest

from tidegate.dialects import Dialect
from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions

BODIES = sorted((Path(__file__).parents[2] / "data" / "dialects").glob("*.json"))
DIALECTS: dict[str, Dialect] = {d.name: d for d in (OpenAIChat(), OpenAICompletions())}


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
def test_a_body_yields_its_facts(path: Path) -> None:
    """Every fact that a golden file names is read from its body."""
    golden = json.loads(path.read_text())
    body = json.dumps(golden["body"], separators=(",", ":")).encode()
    parsed = DIALECTS[golden["dialect"]].parse_request(body, tenant="acme")
    found = {name: getattr(parsed.completion, name) for name in golden["facts"] if name not in ("texts", "stream")}
    found |= {"texts": [m.text for m in parsed.completion.messages], "stream": parsed.stream}
    assert {name: found[name] for name in golden["facts"]} == golden["facts"]
    assert parsed.completion.tenant == "acme"


def test_there_are_golden_bodies() -> None:
    """The folder was found: an empty parametrisation would pass for nothing."""
    assert len(BODIES) >= 11
