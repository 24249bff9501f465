"""What code loads, in an interpreter of its own."""

import subprocess
import sys


def loaded_by(code: str) -> set[str]:
    """Return the names of the modules that are there once code has run; it prints nothing."""
    text = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
