"""Envoy's side of the product: ext_proc streams, access-log entries, the gRPC server they come in on."""
