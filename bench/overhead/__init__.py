"""What Tidegate adds to a request, in latency and processor time: beside Envoy alone and a bare ext_proc service."""
