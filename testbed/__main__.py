"""The entry point of ``testbed`` and ``python -m testbed``.

The long imports must happen inside ``main``, so that Ctrl-C during them leaves no traceback.
"""

import gc
import signal
import sys

INTERRUPTED = 128 + signal.SIGINT
"""The exit status after Ctrl-C in any phase, as a shell reports that signal."""
NEW_OBJECTS = 100_000
"""New objects after which the garbage collector looks for cycles; Python's 700 is for small programs.

The libraries of a command are 300,000 objects, none of them garbage. With 700, looking through them
while they were imported took a sixth of the time before an experiment begins.
"""


def main() -> None:
    """Run the command line and exit with its status."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        from testbed.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
