"""What engines and GPUs say of themselves: how their pages are found, fetched and read."""
