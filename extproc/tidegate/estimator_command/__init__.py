"""`tidegate estimator ...`: train, evaluate and inspect what predicts the length of answers, away from any service."""
