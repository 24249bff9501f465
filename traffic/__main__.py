"""Run the command line of this package: ``python -m traffic``."""

from traffic.cli import main

main()
