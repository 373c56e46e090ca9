"""Adapters: one folder a technology, each implementing ports. They do not know each other."""
