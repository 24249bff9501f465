"""``python -m traffic``."""

from traffic.cli import main

main()
