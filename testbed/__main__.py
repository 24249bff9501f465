"""``python -m testbed`` is ``testbed``; both begin here, before a long import."""

import signal
import sys

INTERRUPTED = 128 + signal.SIGINT
"""The exit status after Ctrl-C, in whatever phase it comes: a shell's own for a signal."""


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from testbed.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
