"""The command line: what a person types, and what a terminal or a program is shown."""
