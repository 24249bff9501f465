"""The entry point of ``testbed`` and ``python -m testbed``.

The long imports must happen inside ``main``, so that Ctrl-C during them leaves no traceback.
"""

import signal
import sys

INTERRUPTED = 128 + signal.SIGINT
"""The exit status after Ctrl-C in any phase, as a shell reports that signal."""


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from testbed.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
