"""`doctor`: what may be wrong, with evidence and what to do. It changes nothing."""
