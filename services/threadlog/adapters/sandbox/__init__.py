"""Tools on Linux: bubblewrap (`SandboxTools`), or no sandbox at all (`BareTools`); see `tools`."""
