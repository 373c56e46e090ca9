"""The machinery of workers: lanes, claims, loading, the consume loop."""
