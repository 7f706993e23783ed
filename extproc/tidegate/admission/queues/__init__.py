"""Who is served next among those that wait."""
