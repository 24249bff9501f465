"""The agent: the process that owns a run's nodes and links, with its user's privileges."""
