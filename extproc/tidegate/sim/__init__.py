"""Engines that never were: a model of continuous batching, and an OpenAI-compatible server that runs on it."""
