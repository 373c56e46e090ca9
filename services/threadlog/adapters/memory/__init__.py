"""Every port in memory: the simplest code that keeps the promises, against which others are read.

Nothing survives the process. `notify` is what the embedded runtime uses too: it is live only.
"""
