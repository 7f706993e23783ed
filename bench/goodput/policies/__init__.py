"""One policy a file, each behind the same interface."""
