"""All that the n-gram estimator has learned."""

from dataclasses import dataclass, field

from tidegate_estimator.calibration import Calibration
from tidegate_estimator.distribution_head import DistributionHead
from tidegate_estimator.keys import Keys
from tidegate_estimator.mean_head import MeanHead
from tidegate_estimator.residuals import Residuals
from tidegate_estimator.tokens import PromptTokens


@dataclass(slots=True)
class NgramState:
    """The heads, what calibrates them, and the prompt sizes; about 16 MB, whatever is learned."""

    mean_head: MeanHead = field(default_factory=MeanHead)
    distribution_head: DistributionHead = field(default_factory=DistributionHead)
    residuals: Residuals = field(default_factory=Residuals)
    calibration: Calibration = field(default_factory=Calibration)
    keys: Keys = field(default_factory=Keys)
    prompts: PromptTokens = field(default_factory=PromptTokens)
