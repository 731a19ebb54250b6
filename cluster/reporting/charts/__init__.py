"""What a report draws: pure functions from values to Vega-Lite specifications, plain dicts."""
