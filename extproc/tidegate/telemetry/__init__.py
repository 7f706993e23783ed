"""What operators see of the process itself: metrics and logs. Requests are seen in Envoy's own stats first."""
