"""Wiring: the only package that names adapters."""
