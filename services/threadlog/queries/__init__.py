"""Queries: what gateway and in-process client read from the views, and how they wait for it."""
