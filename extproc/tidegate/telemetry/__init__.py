"""What operators see of the process itself: metrics and logs. What they see of requests comes from Envoy's own stats
first.
"""
