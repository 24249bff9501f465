"""The record of a run of peers, as tests of their clock have it: nothing is declared."""

from collections.abc import Sequence

from testbed.training.entries import Diagnosed, Entry, Suspected, Welcomed


class Undiagnosed:
    """Takes all entries but diagnostics."""

    def record(self, entries: Sequence[Entry]) -> None:
        assert not any(isinstance(entry, Diagnosed) for entry in entries)


class QuietRecord(Undiagnosed):
    """Takes rows and evaluations, and nothing else: nobody is suspected, either."""

    def record(self, entries: Sequence[Entry]) -> None:
        super().record(entries)
        assert not any(isinstance(entry, Suspected | Welcomed) for entry in entries)
