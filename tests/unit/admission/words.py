"""Commands in words, and what their facts stand for."""

from collections.abc import Iterator
from math import log

from tidegate.admission.limits import GateName, Limits, Mode
from tidegate.admission.queues.orders import Order
from tidegate.admission.reading import EngineReading
from tidegate.admission.work import Work


class Words:
    """One command: its name, names, and facts as `key=value`. Each fact is asked for once, and none may be left."""

    def __init__(self, text: str) -> None:
        self.command, *rest = text.split()
        self.names = [name for word in rest if "=" not in word for name in _range(word)]
        self._facts = dict(word.split("=", 1) for word in rest if "=" in word)

    def text(self, key: str, default: str = "") -> str:
        return self._facts.pop(key, default)

    def yes(self, key: str, default: str) -> bool:
        return {"yes": True, "no": False}[self.text(key, default)]

    def number(self, key: str, default: float) -> float:
        return float(self.text(key, str(default)))

    def number_or_none(self, key: str) -> float | None:
        return float(self._facts.pop(key)) if key in self._facts else None

    def whole_or_none(self, key: str) -> int | None:
        return int(self._facts.pop(key)) if key in self._facts else None

    def whole(self, key: str, default: int) -> int:
        return int(self.text(key, str(default)))

    def end(self) -> None:
        """ValueError where a fact is left that nobody asked for."""
        if self._facts:
            raise ValueError(f"{self.command} knows nothing of {', '.join(self._facts)}")


def _range(word: str) -> Iterator[str]:
    """`s1..3` stands for s1 s2 s3."""
    first, _, last = word.partition("..")
    stem = first.rstrip("0123456789")
    if last:
        yield from (f"{stem}{number}" for number in range(int(first[len(stem) :]), int(last) + 1))
    else:
        yield word


def engines(words: Words, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Addresses of the engines; none where Envoy chooses."""
    return tuple(filter(None, words.text("engines", ",".join(default)).split(",")))


def limits(words: Words) -> Limits:
    """Capacity of an engine, 400 tokens a step unless told otherwise, and the rules."""
    return Limits(
        slots=words.whole_or_none("slots"),
        kv_tokens=words.whole_or_none("kv"),
        batched_tokens=words.whole("batched", 400),
        queue_len=words.whole("queue", 10),
        mode=Mode(words.text("mode", Mode.HYBRID)),
        order=Order(words.text("order", Order.COST_DEADLINE)),
        alpha=words.number("alpha", 3),
        fair=words.yes("fair", "yes"),
        gates=tuple(GateName(name) for name in words.text("gates", "slots,kv,prefill,tpot").split(",")),
        concurrency=words.whole_or_none("concurrency"),
        p99_target_s=words.number("p99", 2),
        memory_floor_mib=words.whole_or_none("floor"),
        early_reject=words.yes("early", "yes"),
    )


def reading(words: Words) -> EngineReading:
    """What an engine says of itself."""
    return EngineReading(
        running=words.whole_or_none("running"),
        waiting=words.whole_or_none("waiting"),
        kv_usage=words.number_or_none("usage"),
        steps_total=words.number_or_none("steps"),
        tokens_total=words.number_or_none("tokens"),
    )


def work(words: Words) -> Work:
    """A request of no id: 100 tokens of prompt and 50 of answer, whose client is patient, unless told otherwise."""
    mean, sigma = words.number("mean", 50), words.number("sigma", 0)
    return Work(
        id="",
        tenant=words.text("tenant"),
        prompt_tokens=words.whole("prompt", 100),
        completion_tokens_max=words.whole_or_none("cap"),
        log_mean=log(mean) - sigma * sigma / 2.0,
        log_sigma=sigma,
        sequences=words.whole("n", 1),
        stream=words.yes("stream", "yes"),
        ttft_budget_s=words.number("budget", 2),
        tpot_target_s=words.number("tpot", 0.15),
        client_timeout_s=words.number("timeout", 600),
        hold_s_max=words.number("hold", 600),
        weight=words.whole("weight", 1),
        refusable=words.yes("refusable", "yes"),
    )
