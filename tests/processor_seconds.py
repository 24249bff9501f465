"""Counts the processor seconds of each test, with all processes that it starts.

``PROCESSOR_SECONDS=FOLDER make test`` writes them as it goes, a file for each process that runs tests;
``python -m tests.processor_seconds FOLDER`` adds them up. Containers are not counted.
"""

import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.nodes.control_group import own_groups, processor_seconds

FOLDER = "PROCESSOR_SECONDS"
"""The environment variable with the folder's name."""
MODULES = 4
"""The number of modules that are named of a folder of tests: those that cost the most."""


class ProcessorSeconds:
    """Plug-in of pytest that counts in a control group of this process and its descendants."""

    def __init__(self, folder: Path, worker: str) -> None:
        """Move this process into a group of its own.

        Args:
            worker: this process's name among those that run tests.

        Raises:
            OSError: no group can be made here.
        """
        self._place = own_groups("cpuacct")[0]
        self._group = self._place.child(f"tests-{os.getpid()}")
        self._group.members_file.write_text("0")
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{worker}.tsv").open("w", encoding="utf-8", buffering=1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Write a line about a test: its name, its processor seconds, and its duration."""
        before, began = processor_seconds(self._group.path), time.monotonic()
        result = yield
        spent, lasted = processor_seconds(self._group.path) - before, time.monotonic() - began
        self._file.write(f"{item.nodeid}\t{spent:.3f}\t{lasted:.3f}\n")
        return result

    def pytest_unconfigure(self) -> None:
        """Leave the group, and remove it, unless a test has left a process there."""
        self._place.members_file.write_text("0")
        with contextlib.suppress(OSError):
            self._group.path.rmdir()


def table(folder: Path) -> Iterator[str]:
    """Yield a line for each folder of tests, the most expensive first, with its longest modules."""
    folders: dict[str, float] = defaultdict(float)
    modules: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for file in folder.glob("*.tsv"):
        for line in file.read_text(encoding="utf-8").splitlines():
            test, spent, _ = line.rsplit("\t", 2)
            path = Path(test.partition("::")[0])
            name = path.parts[1].removesuffix(".py")
            folders[name] += float(spent)
            modules[name][path.stem] += float(spent)
    yield f"all: {sum(folders.values()):.0f} s"
    for name, seconds in _most(folders):
        longest = [f"{module} {part:.0f}" for module, part in _most(modules[name])[:MODULES]]
        yield f"{name}: {seconds:.0f} s ({', '.join(longest)})"


def _most(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda one: one[1], reverse=True)


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]))))
