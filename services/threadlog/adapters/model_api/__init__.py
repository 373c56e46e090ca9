"""Models behind the model port: wire forms as pure functions, and the clients that send them."""
