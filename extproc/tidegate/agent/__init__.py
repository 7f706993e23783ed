"""The GPU agent: what the GPUs of one node can still hold, as a page."""
