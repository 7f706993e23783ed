"""How well and how fast completion lengths are predicted."""
