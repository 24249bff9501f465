"""Several hosts: agents that were started on them, and the connections over which they are asked."""
