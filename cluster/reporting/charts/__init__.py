"""The charts of a report: pure functions from values to Vega-Lite specifications, plain dicts."""
