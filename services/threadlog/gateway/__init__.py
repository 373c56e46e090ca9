"""The gateway: commands over HTTP. By now it serves a second command on the same embedded file."""
