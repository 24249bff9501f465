"""A role on its device: its links, and the loop that tells it what comes over them."""
