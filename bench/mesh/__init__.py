"""Admission controls raced in real time: real Envoy, simulated engines, clients that stream, time out and retry."""
