"""The progress of runs on a screen: a terminal, a pipe or a notebook."""
