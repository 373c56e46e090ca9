"""Adapters: one folder a technology, each an implementation of ports. They do not know each other."""
