"""Scripts: text files that drive one controller step by step and state all that is seen of it after each step.

A script is made of paragraphs: comments, commands, `----`, and what they print. The commands:

    pool FACTS                 a new pool at time 0; `limits FACTS` gives it other limits and engines
    arrive ID.. FACTS          requests, one after the other, each of one known length unless `sigma` is given
    finish ID.. FACTS          their streams end, then their outcomes are told: `tokens`, `ttft`, `e2e`, `ending`
    settle ID.. FACTS          their outcomes alone
    cancel ID..                their clients leave, while they wait or run
    first ID..                 their first tokens are seen
    outcome FACTS              an outcome of another replica's
    read ENGINE FACTS          an engine's own counters
    alive N, memory MIB        engines that are alive; free GPU memory
    tick S                     so much time passes, with a look at every moment that the controller asks for
    drain                      shut down
    learned                    print what has been learned of the engines too

With TIDEGATE_REWRITE=1 in the environment each script is written anew with what it prints; read the difference.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .stage import Stage
from .words import Words

_SCRIPTS = Path(__file__).parents[2] / "data" / "admission"
_LINE = "----"


def perform(script: str) -> Iterator[tuple[int, str, str]]:
    """The paragraphs of a script: the line each begins at, as it stands, and as it should be."""
    stage: Stage | None = None
    line = 1
    for paragraph in script.rstrip("\n").split("\n\n"):
        asked, _, _ = paragraph.partition(f"\n{_LINE}")
        for text in asked.splitlines():
            if text.startswith("#"):
                continue
            words = Words(text)
            if words.command == "pool":
                stage = Stage(words)
                words.end()
            elif stage is None:
                raise ValueError(f"line {line}: no pool yet")
            else:
                stage.do(words)
        only_comments = all(text.startswith("#") for text in asked.splitlines())
        answer = [] if stage is None or only_comments else [_LINE, *stage.lines()]
        yield line, paragraph, "\n".join([asked, *answer])
        line += paragraph.count("\n") + 2


@pytest.mark.parametrize("path", sorted(_SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    """A pool driven as the script says shows what the script says."""
    script = path.read_text()
    if os.environ.get("TIDEGATE_REWRITE") == "1":
        path.write_text("\n\n".join(seen for _, _, seen in perform(script)) + "\n")
        return
    for line, stated, seen in perform(script):
        assert seen == stated, f"{path.name}, line {line}"


def test_a_script_that_states_something_else_fails() -> None:
    """What is printed does not depend on what was expected, and a paragraph without an answer gets one."""
    script = "pool slots=1\narrive a\n----\na waits: slots 2 of 1 sequences\n\ntick 1"
    (_, _, first), (line, stated, second) = perform(script)
    assert first.splitlines()[3] == "a admit: capacity 1 of 1 sequences"
    assert (line, stated) == (6, "tick 1")
    assert second.splitlines()[:3] == ["tick 1", _LINE, "at 1 s, drain rate 1"]


@pytest.mark.parametrize("script", ["tick 1", "pool solts=1", "pool\nadvance 1", "pool\narrive a prompts=1"])
def test_a_script_that_is_misspelt_is_an_error(script: str) -> None:
    """A command or fact that nobody knows is not passed over, nor is a command before there is a pool."""
    with pytest.raises(ValueError, match=r"no pool|solts|advance|prompts"):
        list(perform(script))
