"""Request bodies to facts, refusals to bodies: one file an API."""

from tidegate.dialects.base import Dialect, InferenceRequest
from tidegate.dialects.registry import dialect_for
from tidegate.dialects.usage_option import with_usage_asked

__all__ = ["Dialect", "InferenceRequest", "dialect_for", "with_usage_asked"]
