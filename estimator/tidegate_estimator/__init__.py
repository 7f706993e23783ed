"""What will an inference request cost? Pure, usable alone: no clock, no I/O, no table of open requests."""

from tidegate_estimator.cost import CostEstimate, Source
from tidegate_estimator.estimator import Estimator
from tidegate_estimator.guarded import GuardedEstimator
from tidegate_estimator.ngram import NgramEstimator
from tidegate_estimator.request import CompletionRequest, Message
from tidegate_estimator.window import WindowEstimator

__all__ = [
    "CompletionRequest",
    "CostEstimate",
    "Estimator",
    "GuardedEstimator",
    "Message",
    "NgramEstimator",
    "Source",
    "WindowEstimator",
]
