"""Goodput of admission policies in front of simulated engines, on real traces."""
