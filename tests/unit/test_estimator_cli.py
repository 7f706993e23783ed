"""`tidegate estimator`: train, eval and inspect on small files, and what is said of files that cannot be used."""

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidegate.cli import main
from tidegate.estimator_command import reading
from tidegate.seal import Seal, new_seal, read_key
from tidegate_estimator import CompletionRequest, GuardedEstimator, Message, NgramEstimator
from tidegate_estimator.window import key_of

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def answered(tenant: str, tokens: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Tell {tenant} about number {tokens}"}]
    return {"tenant": tenant, "model": "llama", "messages": messages, "completion_tokens": tokens, **more}


def write(path: Path, records: list[Any]) -> Path:
    text = "".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def requests(count: int = 40) -> list[dict[str, Any]]:
    """Two tenants, one with answers of about 20 tokens and one with about 400."""
    dice = Random(1)
    return [
        answered(tenant, round(middle * dice.uniform(0.9, 1.1)), finish_reason="stop", prompt_tokens=12)
        for _ in range(count)
        for tenant, middle in (("short", 20), ("long", 400))
    ]


def entry(seal: Seal, ticket: bytes, *, at: int = 0, **more: Any) -> dict[str, Any]:
    identity = f"id-{at}"
    return {
        "status": 200,
        "flags": "-",
        "admission": {"id": identity, "ticket": seal.close(ticket, identity)},
        "usage": {"completion_tokens": 33.0, "prompt_tokens": 12.0},
        **more,
    }


def trained(path: Path) -> NgramEstimator:
    estimator = NgramEstimator()
    estimator.load(path.read_bytes())
    return estimator


def ask(tenant: str) -> CompletionRequest:
    text = f"Tell {tenant} about number 5"
    return CompletionRequest(
        tenant=tenant, model="llama", messages=(Message(role="user", text=text),), prompt_chars=len(text)
    )


def test_train_then_eval_then_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model file is written, predicts what it was taught, is evaluated by tenant, and tells what it holds."""
    file, model = write(tmp_path / "answers.jsonl.gz", requests()), tmp_path / "m.tgm"
    assert main(["estimator", "train", "--in", str(file), "--out", str(model), "--epochs", "2"]) == 0
    assert [path.name for path in tmp_path.iterdir() if path != file] == ["m.tgm"], "nothing is left beside it"
    assert trained(model).estimate(ask("short")).p50 == pytest.approx(20, rel=0.3)
    assert trained(model).estimate(ask("long")).p50 == pytest.approx(400, rel=0.3)
    capsys.readouterr()

    assert main(["estimator", "eval", "--in", str(file), "--model", str(model)]) == 0
    table = capsys.readouterr().out
    assert "log-RMSE" in table
    assert f"start: {model}"[:40] in table.replace("\n", "")
    assert all(name in table for name in ("short", "long", "macro", "overall"))

    command = ["estimator", "inspect", "--model", str(model)]
    assert main([*command, "--tenant", "long", "--name-model", "llama"]) == 0
    told = capsys.readouterr().out
    assert "tenants and models" in told
    assert "running mean, without features" in told
    assert main([*command, "--tenant", "nobody", "--name-model", "llama"]) == 0
    assert "nothing is known of tenant 'nobody'" in capsys.readouterr().out
    assert main([*command, "--tenant", "long"]) == 2


def of_the_service(path: Path) -> Path:
    """A model file as the service writes it: the tenant `changed` answers 20 tokens now instead of 4000."""
    estimator = GuardedEstimator()
    for tenant, tokens, count in (("changed", 4000, 40), ("[other]", 20, 60)):
        for _ in range(count):
            assert estimator.learn(estimator.estimate(ask(tenant)).ticket, tokens, "stop")
    for ticket in [estimator.estimate(ask("changed")).ticket for _ in range(20)]:  # under way as it changed
        assert estimator.learn(ticket, 20, "stop")
    path.write_bytes(estimator.dump())
    return path


def lines_with(text: str, what: str) -> list[str]:
    return [line for line in text.splitlines() if what in line]


def test_inspect_shows_who_is_on_the_wider_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hash, since a file holds no names; by name where one is asked for, and the one asked for tells its source."""
    command = ["estimator", "inspect", "--model", str(of_the_service(tmp_path / "ngram.model"))]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "on the wider source: their own predictions have drifted off" in told
    (line,) = lines_with(told, f"{key_of('changed', 'llama'):016x}")
    assert " 60 " in line
    assert f"{key_of('[other]', 'llama'):016x}" not in told
    assert "give --tenant and --name-model" in told
    (line,) = lines_with(told, "watched for drift")
    assert " 2 " in line

    assert main([*command, "--tenant", "changed", "--name-model", "llama"]) == 0
    told = capsys.readouterr().out
    assert len(lines_with(told, "changed with llama")) == 1
    assert f"{key_of('changed', 'llama'):016x}" not in told
    assert "hashes:" not in told
    (line,) = lines_with(told, "predicted by")
    assert "the wider source" in line
    assert main([*command, "--tenant", "[other]", "--name-model", "llama"]) == 0
    (line,) = lines_with(capsys.readouterr().out, "predicted by")
    assert "its own" in line


def test_inspect_of_a_trained_file_has_no_one_on_the_wider_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training on from the service's file gives the n-grams alone: for new weights the guard begins anew."""
    service, new = of_the_service(tmp_path / "ngram.model"), tmp_path / "new.model"
    file = write(tmp_path / "a.jsonl", requests(3))
    assert main(["estimator", "train", "--in", str(file), "--init", str(service), "--out", str(new)]) == 0
    assert main(["estimator", "inspect", "--model", str(new), "--tenant", "changed", "--name-model", "llama"]) == 0
    told = capsys.readouterr().out
    assert "drifted off" not in told
    assert "predicted by" not in told
    (line,) = lines_with(told, "running mean, without features")
    assert "none" not in line, "what the service's n-grams had learned is there"


def test_inspect_refuses_a_file_whose_guard_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and a sentence, as for any other damage."""
    model = of_the_service(tmp_path / "ngram.model")
    content = bytearray(model.read_bytes())
    content[40] ^= 1
    model.write_bytes(content)
    assert main(["estimator", "inspect", "--model", str(model)]) == 2
    assert "holds no usable model: not an estimator state of this version, or damaged" in capsys.readouterr().err


def test_init_goes_on_from_a_model(tmp_path: Path) -> None:
    """What --init knew is still known after training on something else."""
    old, new = tmp_path / "old.tgm", tmp_path / "new.tgm"
    short = [record for record in requests() if record["tenant"] == "short"]
    long = [record for record in requests() if record["tenant"] == "long"]
    assert main(["estimator", "train", "--in", str(write(tmp_path / "a", short)), "--out", str(old)]) == 0
    begin = ["estimator", "train", "--in", str(write(tmp_path / "b", long)), "--init", str(old)]
    assert main([*begin, "--out", str(new)]) == 0
    assert trained(new).estimate(ask("short")).p50 < 50
    assert trained(new).estimate(ask("long")).p50 > 250


@pytest.mark.parametrize(("flags", "start"), [([], "the shipped prior"), (["--cold"], "nothing")])
def test_without_a_model_the_start_is_that_of_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], start: str
) -> None:
    """The shipped prior, unless --cold asks for nothing; --cold beside a model makes no sense and is refused."""
    command = ["estimator", "eval", "--in", str(write(tmp_path / "a.jsonl", requests(3)))]
    assert main([*command, *flags]) == 0
    assert f"start: {start}" in capsys.readouterr().out
    assert main([*command, "--cold", "--model", str(tmp_path / "m.tgm")]) == 2


def test_corpus_records_are_read(tmp_path: Path) -> None:
    """One prompt with many answers, and a conversation in which each answer counts; a left-out middle is filled up."""
    text = "Head of it\n…[5000 chars]…\ntail of it"
    prompt = {
        "kind": "prompt",
        "tenant": "t",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 900,
        "prompt_tokens": 1200,
        "completions": [{"model": f"m{n}", "completion_tokens": 10 + n} for n in range(20)],
    }
    turns = [("system", 5), ("user", 4), ("assistant", 30), ("tool", 9), ("assistant", 40), ("assistant", 50)]
    conv = {
        "kind": "conv",
        "tenant": "t",
        "model": "m",
        "tools": True,
        "messages": [{"role": role, "content": "words", "tokens": tokens} for role, tokens in turns],
    }
    file = write(tmp_path / "corpus.jsonl", [prompt, conv])
    rows = reading.read_answers([file], order=reading.Order.FILE, answers_max=12, seal=None).rows
    assert len(rows) == 12 + 2
    of_prompt, of_conv = rows[0], rows[12:]
    assert isinstance(of_prompt, reading.Answered)
    assert of_prompt.request.prompt_chars == 5000 + len("Head of it") + len("tail of it")
    assert (of_prompt.request.max_tokens, of_prompt.prompt_tokens) == (900, 1200)
    assert [row.completion_tokens for row in of_conv] == [30, 40]
    assert all(isinstance(row, reading.Answered) and row.request.tools == 1 for row in of_conv)


def test_access_log_entries_teach_through_their_tickets(tmp_path: Path) -> None:
    """With the service's key the entries teach; the model then knows the tenant whose prompts it never saw."""
    key = tmp_path / "key"
    key.write_text(KEY)
    seal, service = new_seal(key), NgramEstimator()
    entries = [entry(seal, service.estimate(ask("short")).ticket, at=at) for at in range(30)]
    file, model = write(tmp_path / "access.jsonl", entries), tmp_path / "m.tgm"
    command = ["estimator", "train", "--in", str(file), "--out", str(model)]
    assert main([*command, "--key-file", str(key)]) == 0
    assert trained(model).estimate(ask("short")).p50 == pytest.approx(33, rel=0.2)


def test_entries_without_the_right_key_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No key, another key, or eval: exit code 2 and a sentence that says what is missing."""
    ticket = NgramEstimator().estimate(ask("short")).ticket
    key, other = tmp_path / "key", Seal(bytes(32), bytes(8))
    key.write_text(KEY)
    file = write(tmp_path / "access.jsonl", [entry(other, ticket)])
    command = ["estimator", "train", "--in", str(file), "--out", str(tmp_path / "m.tgm")]
    assert main(command) == 2
    assert "--key-file must name the key" in capsys.readouterr().err
    assert main([*command, "--key-file", str(key)]) == 2
    assert "not sealed under the key" in capsys.readouterr().err
    assert main(["estimator", "eval", "--in", str(file)]) == 2
    assert not (tmp_path / "m.tgm").exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"status": 503}, "status 503"),
        ({"usage": None}, "did not say how long"),
        ({"usage": {"completion_tokens": 5, "stream_error": "x"}}, "failed in the middle"),
        ({"admission": {"id": "id-0"}}, "no ticket"),
    ],
)
def test_entries_without_an_answer_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], why: str
) -> None:
    """Refusals, failures and answers of unknown length teach nothing, and the reason is told."""
    key = tmp_path / "key"
    key.write_text(KEY)
    ticket = NgramEstimator().estimate(ask("short")).ticket
    file = write(tmp_path / "access.jsonl", [entry(Seal(read_key(key), bytes(8)), ticket, **more)])
    command = ["estimator", "train", "--in", str(file), "--out", str(tmp_path / "m"), "--key-file", str(key)]
    assert main(command) == 2
    assert why in capsys.readouterr().err


def test_bad_lines_are_told_counted_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first few with file, line and reason, the rest as a number; the good ones are learned."""
    bad = ["", "not json", "[]", '{"messages": 5, "completion_tokens": 5}', '{"kind": "prompt"}', "{}"]
    records = [*bad, *requests(5), answered("t", 0), answered("t", 5, time="soon"), *["x"] * 20]
    file, model = write(tmp_path / "mixed.jsonl", records), tmp_path / "m.tgm"
    assert main(["estimator", "train", "--in", str(file), "--out", str(model)]) == 0
    told = capsys.readouterr().err
    assert "skipped 27 lines" in told
    assert f"{file}:2: " in told
    assert "and 22 more lines" in told
    assert "learned 10 answers" in told


def test_tidegates_own_request_log_is_refused_with_a_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has lengths but no features: the message names the log that has them. Exit code 2."""
    line = {"event": "request", "id": "1", "tenant": "t", "model": "m", "completion_tokens": 5}
    file, model = write(tmp_path / "requests.log", [line]), tmp_path / "m.tgm"
    assert main(["estimator", "train", "--in", str(file), "--out", str(model)]) == 2
    told = capsys.readouterr().err
    assert "no usable answer" in told
    assert "access log as JSON" in told
    assert not model.exists()


@pytest.mark.parametrize("content", [None, b"", b"\x1f\x8b damaged"])
def test_files_that_cannot_be_read_end_with_2(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, empty and damaged files: one line that names the file or says that nothing was in it."""
    file = tmp_path / "answers.jsonl.gz"
    if content is not None:
        file.write_bytes(content)
    assert main(["estimator", "eval", "--in", str(file)]) == 2
    assert "--in: " in capsys.readouterr().err


def test_a_damaged_model_is_refused_and_a_failed_write_leaves_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--init of another file ends with 2; so does --out into a folder that is not there."""
    file, model = write(tmp_path / "a.jsonl", requests(3)), tmp_path / "m.tgm"
    model.write_bytes(b"no model")
    command = ["estimator", "train", "--in", str(file)]
    assert main([*command, "--out", str(tmp_path / "n.tgm"), "--init", str(model)]) == 2
    assert "holds no usable model" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "nowhere" / "m.tgm")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_time_orders_rows_where_every_line_has_it(tmp_path: Path) -> None:
    """Seconds and ISO 8601 alike; asking for an order that the lines do not give is refused by name."""
    times: list[Any] = [1_700_000_300, "2023-11-14T22:13:20.000Z", 1_700_000_100.5]
    records = [answered("t", at + 1, time=time) for at, time in enumerate(times)]
    file = write(tmp_path / "a.jsonl", records)
    answers = reading.read_answers([file], order=reading.Order.AUTO, answers_max=1, seal=None)
    assert answers.order is reading.Order.TIME
    assert [row.completion_tokens for row in answers.rows] == [2, 3, 1]
    write(file, [*records, answered("t", 9)])
    assert main(["estimator", "eval", "--in", str(file), "--order", "time"]) == 2


def test_only_so_many_rows_are_kept(tmp_path: Path) -> None:
    """Beyond the bound the rest is left out, and said so."""
    file = write(tmp_path / "a.jsonl", requests(10))
    answers = reading.read_answers([file], order=reading.Order.FILE, answers_max=1, seal=None, rows_max=7)
    assert len(answers.rows) == 7
    assert answers.left_out
