"""The vocabulary of the log: pure types, their catalog and their codec."""
