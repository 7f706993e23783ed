"""Request bodies to facts, refusals to bodies: one file an API."""

from tidegate.dialects.base import CostClass, Dialect, InferenceRequest
from tidegate.dialects.registry import OPENS_EARLY, dialect_for, passes
from tidegate.dialects.usage_option import with_usage_asked

__all__ = ["OPENS_EARLY", "CostClass", "Dialect", "InferenceRequest", "dialect_for", "passes", "with_usage_asked"]
