"""Tables of one run and of several."""
