"""Bring home what programs on other hosts have written, part by part, when they have ended.

One device after the other is asked for, and each part only when the one before is written: the agents
never send faster than it is taken.
"""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from testbed.messages.agent_reports import HomePartRead
from testbed.messages.requests import ReadHome
from testbed.nodes.confinement import HOME
from testbed.orchestrator.agent import device_folders


class HomesElsewhere:
    """The homes that are on other hosts than the run directory."""

    def __init__(self, folder: Path, ask: Callable[[ReadHome], None]) -> None:
        """Ask for nothing yet.

        Args:
            folder: with a folder for each device.
            ask: sends a request to the agent of a device's host.
        """
        self._folder, self._ask = folder, ask
        self._left: list[str] = []
        self._archive: IO[bytes] | None = None

    @property
    def are_here(self) -> bool:
        """True if no home is being brought."""
        return not self._left

    def bring(self, devices: Iterable[str]) -> None:
        """Ask for the homes of devices.

        Raises:
            OSError: there is no room for them.
        """
        self._left = [*devices]
        self._bring_next()

    def _bring_next(self) -> None:
        if self._archive is not None:
            self._archive.close()
            self._archive = None
        if self._left:
            self._archive = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed above
            self._ask(ReadHome(self._left[0]))

    def take(self, event: HomePartRead) -> None:
        """Take in a part; go on with the next device after the last one.

        Raises:
            OSError: there is no room for it.
        """
        assert self._archive is not None
        device = self._left[0]
        if event.raw:
            self._archive.write(event.raw)
            self._ask(ReadHome(device))
            return
        device_folders.unpack(self._archive, self._folder / device / HOME)
        del self._left[0]
        self._bring_next()

    def lose(self, devices: Iterable[str]) -> None:
        """Do without the homes of devices whose host is lost."""
        first = self._left[:1]
        self._left = [device for device in self._left if device not in {*devices}]
        if first != self._left[:1]:
            self._bring_next()
