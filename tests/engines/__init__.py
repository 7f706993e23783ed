"""The same questions to the real vLLM, Triton and Ray Serve: `make test-engines`. No other run collects these files."""
