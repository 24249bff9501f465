"""If the host was fast enough for a run under the wall clock: what was measured, and the verdict."""
