"""Request bodies of every kind and the facts each must yield (tests/data/dialects)."""

import json
from pathlib import Path

import pytest

from tidegate.dialects import Dialect
from tidegate.dialects.anthropic_messages import AnthropicMessages
from tidegate.dialects.openai_audio import OpenAISpeech
from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions
from tidegate.dialects.openai_embeddings import OpenAIEmbeddings
from tidegate.dialects.openai_responses import OpenAIResponses
from tidegate.dialects.rerank import Rerank, Score

BODIES = sorted((Path(__file__).parents[2] / "data" / "dialects").glob("*.json"))
DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        OpenAIChat(),
        OpenAICompletions(),
        OpenAIResponses(),
        AnthropicMessages(),
        OpenAIEmbeddings(),
        Rerank(),
        Score(),
        OpenAISpeech(),
    )
}
OF_THE_REQUEST = ("stream", "usage_unasked", "cost_class", "input_size", "is_conversation")


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
def test_a_body_yields_its_facts(path: Path) -> None:
    """Every fact that a golden file names is read from its body."""
    golden = json.loads(path.read_text())
    body = json.dumps(golden["body"], separators=(",", ":")).encode()
    parsed = DIALECTS[golden["dialect"]].parse_request(body, tenant="acme")
    found = {"texts": [m.text for m in parsed.completion.messages]}
    for name in golden["facts"].keys() - found:
        found[name] = getattr(parsed if name in OF_THE_REQUEST else parsed.completion, name)
    assert {name: found[name] for name in golden["facts"]} == golden["facts"]
    assert parsed.completion.tenant == "acme"


def test_there_are_golden_bodies_of_every_dialect() -> None:
    """The folder was found, and no dialect is without one."""
    assert {json.loads(path.read_text())["dialect"] for path in BODIES} == set(DIALECTS)
