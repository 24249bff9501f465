"""The measurement of a peer's bandwidth, with moments that are handed in."""

import math

from testbed.roles.peer.wall_peer import LONGEST, SendingRate


def test_the_rate_is_that_until_the_last_connection_is_empty() -> None:
    rate = SendingRate({1: 100, 2: 0}, {1: 1100, 2: 500}, 10.0)
    rate.look([1, 2], 11.0)
    assert not rate.is_over
    rate.look([1], 12.0)
    assert not rate.is_over
    rate.look([], 15.0)
    assert rate.is_over
    assert rate.bandwidth == 300.0  # 1,500 bytes in 5 s


def test_a_peer_that_receives_nothing_is_waited_for_only_so_long() -> None:
    rate = SendingRate({}, {1: 400, 2: 900}, 0.0)
    rate.look([2], 2.0)
    rate.look([2], LONGEST)
    assert not rate.is_over
    rate.look([2], LONGEST + 1)
    assert rate.is_over
    assert rate.bandwidth == 200.0  # what did leave, in the time that it took


def test_a_peer_that_sends_nothing_has_no_limit() -> None:
    rate = SendingRate({}, {}, 0.0)
    rate.look([], 0.0)
    assert rate.is_over
    assert rate.bandwidth == math.inf
