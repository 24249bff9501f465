"""Check what this host can do, and that it is enough for a run."""
