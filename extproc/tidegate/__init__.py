"""Tidegate: admission control and queueing for LLM inference, as an Envoy external-processing service."""

from importlib.metadata import version

__version__ = version("tidegate")
