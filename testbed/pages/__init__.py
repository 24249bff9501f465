"""Pages in a browser: the runs of this host while they go on, compared, started and stopped."""
