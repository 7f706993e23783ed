"""Request bodies to facts, refusals to bodies: one file an API."""

from tidegate.dialects.base import CostClass, Dialect, InferenceRequest
from tidegate.dialects.error_format import ErrorBody, ErrorFormat, error_body
from tidegate.dialects.registry import OPENS_EARLY, dialect_for, passes
from tidegate.dialects.usage_option import with_usage_asked

__all__ = [
    "OPENS_EARLY",
    "CostClass",
    "Dialect",
    "ErrorBody",
    "ErrorFormat",
    "InferenceRequest",
    "dialect_for",
    "error_body",
    "passes",
    "with_usage_asked",
]
