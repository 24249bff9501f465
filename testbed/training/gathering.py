"""What a worker has of the parameters of its servers, and when it begins to compute at them.

Xu et al. (paper 004, §2) name three protocols. A worker that *pulls* asks for the newest parameters and
waits for them. The others are sent every version: one of *push-and-wait* finishes what it computes, and
takes its newest version then; one of *push-and-interrupt* drops it, and begins with the newer one.
"""

from collections.abc import Sequence

from testbed.algorithms.server_half import Protocol


class Gathering:
    """What a worker has of the parameters: one part from each server.

    A worker that asks begins when every server has answered. One that is sent every version begins, as
    its protocol says, when a newer version is *complete*: every server has sent it, or a newer one. It
    computes at the complete version of each part; where a server has skipped that, at the newest before
    it; where there is none before it, at the oldest after it. A version that a server sends again, as
    it had suspected the worker, counts as newer. A server that has stopped, as its updates are
    complete, is not waited for: its part stays as it last was.
    """

    def __init__(self, protocol: Protocol, servers: int) -> None:
        self._asks = protocol == "pull"
        self._waits = protocol == "push-and-wait"
        # The version that is computed at, and the newest one that is complete.
        self._computing: int | None = None
        self._newest = -1
        # The versions that have arrived and may still be needed, by server, in order.
        self._there: list[list[int]] = [[] for _ in range(servers)]
        self._awaited = [True] * servers
        self._stopped = [False] * servers
        self._on_the_way = [0] * servers
        self._used: list[int | None] = [None] * servers
        self._again = False
        self._complete = -1
        # Added to complete versions, which are only compared.
        self._offset = 0

    def sent(self, server: int) -> None:
        """Count parameters that a server has sent the worker as on the way."""
        self._on_the_way[server] += 1

    def arrived(self, server: int, version: int) -> Sequence[int] | None:
        """Add the version of parameters that have arrived.

        Returns:
            The versions at which to begin to compute now, by server; None if nothing is to begin.
        """
        if version == self._used[server]:
            self._again = True
        if self._there[server][-1:] != [version]:
            self._there[server].append(version)
        self._awaited[server] = False
        self._on_the_way[server] = max(0, self._on_the_way[server] - 1)
        return self._begin()

    def stopped(self, server: int) -> Sequence[int] | None:
        """Mark a server as stopped; return the same as ``arrived``."""
        self._stopped[server] = True
        return self._begin()

    def restored(self, server: int) -> None:
        """Forget a restored server's versions: the next one that it sends counts as newer."""
        self._there[server] = []
        self._used[server] = None
        self._on_the_way[server] = 0
        self._again = self._awaited[server] = True
        self._offset += self._complete + 1

    def finished(self) -> tuple[bool, Sequence[int] | None]:
        """End the worker's computation.

        Returns:
            Whether it only reports that, as it is too late; and the versions, by server, at which it
            begins to compute without being sent anything first, or None.
        """
        late = not self._asks and self._newest > (self._computing or 0)
        self._computing = self._newest if late else None
        if not late:
            return False, None
        if not all(self._there):
            # A server is back since the newer version arrived, and has not sent its part yet.
            self._computing = None
            return True, None
        return True, self._versions()

    def _begins_at(self, version: int) -> bool:
        """Note a version that is complete now; return True if the worker begins with it."""
        self._newest = version
        if self._waits and self._computing is not None:
            return False
        self._computing = version
        return True

    def _begin(self) -> Sequence[int] | None:
        waited_for = [
            server
            for server, stopped in enumerate(self._stopped)
            if not stopped or self._on_the_way[server]
        ]
        if not (all(self._there) and waited_for):
            return None
        if self._asks:
            if any(self._awaited[server] for server in waited_for):
                return None
            self._awaited = [True] * len(self._there)
            self._complete += 1
        else:
            complete = min(self._there[server][-1] for server in waited_for)
            if complete <= self._complete and not self._again:
                return None
            self._complete = complete
        if not self._begins_at(self._complete + self._offset):
            return None
        self._again = False
        return self._versions()

    def _versions(self) -> list[int]:
        """Return the version of each part that the worker computes at now; forget older ones."""
        found = []
        for server, there in enumerate(self._there):
            base = there[-1]
            if not (self._asks or self._stopped[server]):
                base = max((one for one in there if one <= self._complete), default=there[0])
            self._there[server] = [one for one in there if one >= base]
            found.append(base)
        self._used[:] = found
        return found
