"""The client: what a program does with threads, in process or through a runtime's socket."""
