"""Paths of the open inference protocol, where the model's name stands: `/v2/models/MODEL[/versions/VERSION]/VERB`."""

import re

from tidegate.dialects import openai_body
from tidegate.dialects.base import Dialect
from tidegate.dialects.kserve_v2 import KServeV2
from tidegate.dialects.triton_generate import TritonGenerate

_PATH = re.compile(r"/v2/models/([^/]+)(?:/versions/[^/]+)?/(infer|generate|generate_stream)\Z")
_TAIL_CHARS_MAX = 1024  # of a path, searched for the above: model names are shorter, and prefixes do not matter


def by_model(path: str) -> Dialect | None:
    """The dialect of a path, bound to its model; None where the path is another."""
    found = _PATH.search(path[-_TAIL_CHARS_MAX:])
    if found is None:
        return None
    model = found[1][: openai_body.MODEL_CHARS_MAX]
    return KServeV2(model) if found[2] == "infer" else TritonGenerate(model, stream=found[2] == "generate_stream")
