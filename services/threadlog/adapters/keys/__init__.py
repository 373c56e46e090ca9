"""API keys as one file of hashes that gateways share."""
