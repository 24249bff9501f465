"""The channels to keepers, which may read late or not at all."""

import contextlib

from testbed.messages.keeper_messages import KEEPER_REQUESTS, EndPrograms, StartProgram
from testbed.nodes.keeper import KeeperArguments
from testbed.orchestrator.programs.keepers import Keepers

ROLE: KeeperArguments = {"folder": "", "home": "", "output": 0}


def test_requests_wait_for_a_keeper_that_does_not_read_yet() -> None:
    asked = [StartProgram(f"p{i}", ["it"], {"LONG": 3_000 * "x"}, {}, {}) for i in range(500)]
    with contextlib.closing(Keepers()) as keepers:
        theirs = keepers.open("worker-0", ROLE)
        for request in asked:
            keepers.ask("worker-0", request)
        keepers.ask("worker-0", EndPrograms(1.0))
        heard: list[object] = []
        while EndPrograms(1.0) not in heard[-1:]:
            assert not [*keepers.take()]
            while theirs.readable(0):
                heard.append(KEEPER_REQUESTS.receive(theirs))
        assert heard[:-1] == asked
        # What a keeper that is gone has not read is lost, and hinders nobody.
        for request in asked:
            keepers.ask("worker-0", request)
        theirs.close()
        assert not [*keepers.take()]
        keepers.ask("worker-0", EndPrograms(1.0))
