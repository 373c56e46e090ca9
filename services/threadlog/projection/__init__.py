"""The projection: what readers see is folded here, behind the log."""
