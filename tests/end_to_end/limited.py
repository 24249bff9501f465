"""Commands that may have few open files, forked as others are: ``ulimit`` needs a new interpreter."""

import subprocess
from pathlib import Path

from tests.end_to_end.conftest import DEADLINE, CommandLine, warm


def do(
    command: CommandLine, *arguments: str | Path, files: int
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end that may have ``files`` open, and cannot ask for more."""
    texts = [*map(str, arguments)]
    written = [command.folder / f"{name}-limited" for name in ("output", "errors")]
    with written[0].open("wb") as output, written[1].open("wb") as errors:
        streams = output.fileno(), errors.fileno()
        begun = warm().start(texts, command.folder, command._environment, *streams, files=files)
        status = begun.wait(DEADLINE)
    return subprocess.CompletedProcess(texts, status, *(path.read_text() for path in written))
