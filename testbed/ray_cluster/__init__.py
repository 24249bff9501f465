"""What sweeps and runs over several hosts have of a Ray cluster: its nodes, and how data get there."""
