"""A job: what its user wants answered, and the tries that its client made of it."""

from dataclasses import dataclass

from tidegate.sim.arrivals import Arrival
from tidegate.sim.record import Record
from tidegate.sim.report import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, ended.

    Attributes:
        tries: what the client saw of each try, in order; at least one. A try's `at_s` is the moment it was meant for.
        cost_s: engine seconds that its answer takes.
        cut: the run ended before it did.
    """

    arrival: Arrival
    tries: tuple[Record, ...]
    cost_s: float
    cut: bool = False

    @property
    def last(self) -> Record:
        """The try that decided how it ended."""
        return self.tries[-1]

    @property
    def ended_s(self) -> float:
        """Moment of its end, from the run's start."""
        return self.last.ended_s

    def met(self, objective: Objective) -> bool:
        """Whether its last try was served within objective, counted from that try's own sending."""
        return objective.met_by(self.last)

    def met_from_start(self, objective: Objective) -> bool:
        """The same with the first token counted from the moment the job came: refused tries and pauses included."""
        ttft_s = self.last.ttft_s
        if not self.met(objective) or ttft_s is None:
            return False
        return self.last.at_s + self.last.late_s + ttft_s - self.arrival.at_s <= objective.ttft_s
