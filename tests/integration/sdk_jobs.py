"""What an SDK client is told to ask, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

JOB_HEADER = "x-test-job"
"""Tells which job a try belongs to; every client sends it with each of its tries."""


class Client(StrEnum):
    """A client library that people use."""

    OPENAI_PYTHON = "openai-python"
    OPENAI_NODE = "openai-node"
    ANTHROPIC_PYTHON = "anthropic-python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of one client.

    Attributes:
        name: unlike every other's in its run.
        url: what the API's own path, `/v1/...`, is appended to.
        retries_max: None leaves it to the library.
    """

    name: str
    client: Client
    url: str
    stream: bool = False
    retries_max: int | None = None
    prompt: str = "Hello"
    max_tokens: int = 1


Lane = Sequence[Job]
"""Jobs of one client library that follow one another."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How a job ended, as its caller saw it.

    Attributes:
        job: its name.
        text: the answer, where nothing was raised.
        raised: class of the error, or empty.
        status: HTTP status of the error; 0 where it has none.
        kind, code, message: what the SDK has read from the error's body; empty where it offers no such thing.
    """

    job: str
    text: str = ""
    raised: str = ""
    status: int = 0
    kind: str = ""
    code: str = ""
    message: str = ""
