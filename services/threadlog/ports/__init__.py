"""Ports: what the runtime needs from the world, as protocols. Adapters implement them."""
