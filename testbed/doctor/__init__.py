"""Check what this host can do, and whether that is enough for a run."""
