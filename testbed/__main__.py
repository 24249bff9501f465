"""``python -m testbed`` is ``testbed``."""

from testbed.cli import main

main()
