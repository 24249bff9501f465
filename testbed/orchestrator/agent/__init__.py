"""The agent: the process, privileged where its user is, that owns a run's nodes and links."""
