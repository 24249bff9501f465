"""The entry point of ``testbed`` and ``python -m testbed``.

The long imports must happen inside ``main``, so that Ctrl-C during them leaves no traceback.
"""

import gc
import io
import os
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
    _use_utf_8()
    try:
        from testbed.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        # Or the interpreter would look through all objects once more before it ends: most of a second.
        gc.freeze()


def _use_utf_8() -> None:
    """Restart in Python's UTF-8 mode, where the locale has another encoding.

    An experiment file is UTF-8, with the paths in it, which would not be found in another encoding.
    What the terminal cannot show, or is no text (a file's name may be any bytes), is printed escaped.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"  # for the processes that this one starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
