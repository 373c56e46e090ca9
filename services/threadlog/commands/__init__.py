"""Commands: a request becomes events, is appended, and its judgement is waited for."""
