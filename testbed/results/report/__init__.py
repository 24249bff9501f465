"""The report of some runs: one HTML file that needs nothing else."""
