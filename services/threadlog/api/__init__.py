"""Wire types that gateway and client share. Pure."""
