"""The one place where the version of the distribution is written down."""

VERSION = "0.1.0"
