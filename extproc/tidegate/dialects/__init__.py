"""Request bodies to facts, refusals to bodies: one file an API."""

from tidegate.dialects.base import Dialect, InferenceRequest
from tidegate.dialects.registry import dialect_for

__all__ = ["Dialect", "InferenceRequest", "dialect_for"]
