"""A recorded stream of requests: steps that point into corpus records, in the order in which they came.

    DATA/stream.SPLIT.jsonl.gz   {"ts", "tenant", "rec", "i", "split", "model", ...}, one step a line
    DATA/*.SPLIT.jsonl.gz        the records, by "id": i-th completion of a prompt, i-th message of a conversation

The tenant and the model's name are the step's own: behind one name the model may change silently.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tidegate.estimator_command.corpus import read_record
from tidegate_estimator.training import Answered

RECORD_SPLITS = ("train", "dev")


def stream_path(data: Path) -> Path:
    """Where the stream lies."""
    return data / "stream.dev.jsonl.gz"


def corpus_paths(data: Path, split: str) -> list[Path]:
    """The files of records of one split."""
    return [path for path in sorted(data.glob(f"*.{split}.jsonl.gz")) if path.name != stream_path(data).name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the stream: the answer, the source of its record, and the split that the record is of."""

    row: Answered
    source: str
    split: str


def read_stream(data: Path) -> list[Step]:
    """The stream's steps in order."""
    records = {
        record["id"]: record
        for each in RECORD_SPLITS
        for path in corpus_paths(data, each)
        for record in _json_lines(path)
    }
    steps = _json_lines(stream_path(data))
    return [
        Step(row=_answered(record, step), source=record["source"], split=step["split"])
        for step in steps
        for record in (records[step["rec"]],)
    ]


def source_of(path: Path) -> str:
    """The source's name of a corpus file."""
    return path.name.partition(".")[0]


def _answered(record: dict[str, Any], step: dict[str, Any]) -> Answered:
    at = step["i"]
    if record["kind"] == "prompt":
        own = {**record, "completions": [record["completions"][at]]}
    else:
        own = {**record, "messages": record["messages"][: at + 1]}
    row = read_record(msgspec.json.encode(own), answers_max=1)[-1]
    return row._replace(
        request=msgspec.structs.replace(row.request, tenant=step["tenant"], model=step["model"]), finish_reason="stop"
    )


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf8") as lines:
        yield from map(json.loads, lines)
