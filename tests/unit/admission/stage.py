"""One controller on a stage: commands in words drive it, and all that is seen of it is told in words."""

from collections.abc import Callable, Iterator

from msgspec import structs

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Decision
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.queues.fair import FairQueue

from .telling import abridged, engine, learned, queued, said, short
from .words import Words, engines, limits, reading, work

_LOOKS_MAX = 100_000


class Stage:
    """One controller, the time, and what has been said since it was last asked."""

    def __init__(self, words: Words) -> None:
        self._names, self._count = engines(words), words.whole("count", 1)
        self.now_s = 0.0
        self.controller = Controller(
            limits(words), engines=self._count, names=self._names, now_s=0.0, ramp=words.yes("ramp", "no")
        )
        self.said: list[str] = []
        self._sent: dict[str, tuple[float, str]] = {}  # when and where to; never emptied, for ids are not used again
        self._strangers = 0
        self._commands: dict[str, Callable[[Words], None]] = {
            "alive": lambda words: self.controller.set_engines_alive(int(words.names[0]), self.now_s),
            "arrive": self._arrive,
            "cancel": self._finish,
            "drain": lambda words: self.controller.drain(self.now_s),
            "finish": self._finish,
            "first": self._first,
            "learned": lambda words: self.said.extend(map(learned, self.controller._fleet)),
            "limits": self._reconfigure,
            "memory": self._memory,
            "outcome": self._outcome,
            "read": self._read,
            "settle": self._settle,
            "tick": self._pass,
        }

    def do(self, words: Words) -> None:
        """Carry out one command; ValueError where there is none of that name, or it does not know a fact."""
        carry_out = self._commands.get(words.command)
        if carry_out is None:
            raise ValueError(f"no command: {words.command}")
        carry_out(words)
        words.end()
        self._listen()

    def lines(self) -> Iterator[str]:
        """What has been said, and then the state."""
        yield from abridged(self.said, "...")
        self.said = []
        fleet, queue = self.controller._fleet, self.controller._queue
        yield f"at {short(self.now_s)} s, drain rate {short(self.controller._drain_rate.value)}"
        for book in fleet:
            ids = [work_id for work_id in self._sent if work_id in book]
            yield engine(book) + (": " + " ".join(abridged(ids, "..")) if ids else "")
        if down := sorted(fleet.down()):
            yield f"down: {' '.join(down)}"
        if len(queue):
            assert isinstance(queue, FairQueue)
            snapshot, wake_s = self.controller.snapshot(self.now_s), self.controller.next_wake_s() or 0.0
            yield (
                f"queue {snapshot.queue_len} of {snapshot.queue_len_max},"
                f" {short(snapshot.queued_s)} s of work, next look at {short(wake_s)} s"
            )
            yield from queued(queue)

    def _arrive(self, words: Words) -> None:
        template = work(words)
        for work_id in words.names:
            self._say(self.controller.submit(structs.replace(template, id=work_id), self.now_s))
            self._listen()

    def _first(self, words: Words) -> None:
        for work_id in words.names:
            self.controller.first_token(work_id, self.now_s)
            self._listen()

    def _read(self, words: Words) -> None:
        engine = words.names[0] if words.names else ""
        self.controller.read(engine, reading(words), self.now_s)

    def _memory(self, words: Words) -> None:
        self.controller._guards.memory_free_mib = float(words.names[0])

    def _reconfigure(self, words: Words) -> None:
        self._names, self._count = engines(words, self._names), words.whole("count", self._count)
        self.controller.reconfigure(limits(words), self._count, self.now_s, names=self._names)

    def _finish(self, words: Words) -> None:
        outcomes = self._outcomes(words)
        for outcome in outcomes:
            self.controller.release(outcome.id, self.now_s)
            self._listen()
            self.controller.settle(outcome, self.now_s)
            self._listen()

    def _settle(self, words: Words) -> None:
        for outcome in self._outcomes(words):
            self.controller.settle(outcome, self.now_s)
            self._listen()

    def _outcomes(self, words: Words) -> list[Outcome]:
        cancelled = words.command == "cancel"
        ttft_s, e2e_s = words.number_or_none("ttft"), words.number_or_none("e2e")
        template = Outcome(
            id="",
            ending=Ending(words.text("ending", Ending.CLIENT_CANCELLED if cancelled else Ending.COMPLETE)),
            stream=ttft_s is not None,
            completion_tokens=words.whole_or_none("tokens"),
            ttft_s=ttft_s,
            e2e_s=e2e_s,
            details=words.text("details"),
        )
        outcomes = []
        for work_id in words.names:
            sent_s, engine = self._sent.get(work_id, (self.now_s, ""))
            took_s = self.now_s - sent_s if e2e_s is None else e2e_s
            outcomes.append(structs.replace(template, id=work_id, engine=engine, e2e_s=took_s))
        return outcomes

    def _outcome(self, words: Words) -> None:
        engine, details = words.text("engine"), words.text("details")
        ending = Ending(words.text("ending", Ending.COMPLETE))
        for _ in range(words.whole("times", 1)):
            self._strangers += 1
            outcome = Outcome(id=str(self._strangers), replica="other", ending=ending, engine=engine, details=details)
            self.controller.settle(outcome, self.now_s)
            self._listen()

    def _pass(self, words: Words) -> None:
        until_s = round(self.now_s + float(words.names[0]), 9)
        for _ in range(_LOOKS_MAX):
            wake_s = self.controller.next_wake_s()
            if wake_s is None or wake_s >= until_s:
                break
            self.now_s = max(wake_s, self.now_s)
            self.controller.tick(self.now_s)
            self._listen()
        else:
            raise ValueError(f"more than {_LOOKS_MAX} looks")
        self.now_s = until_s
        self.controller.tick(until_s)

    def _listen(self) -> None:
        for verdict in self.controller.take_verdicts():
            self._say(verdict)

    def _say(self, decision: Decision) -> None:
        if isinstance(decision, Admit):
            self._sent[decision.id] = self.now_s, decision.engine
        self.said.append(said(decision))
