"""What is gathered of a host: the idle share of each second, and what a link carried in one."""

import numpy as np
import pytest

from testbed.messages.agent_reports import HostRead
from testbed.network.links import Link, Shape
from testbed.runs.fidelity_readings import HostShares, LinkSamples
from traffic.counters import COUNTS


def read(time: float, idle: float, throttled: float | None = 0.0, cpu: float = 0.0) -> HostRead:
    return HostRead(time, 2 * time, idle, 0.1 * time, throttled, {"cpu": cpu})


def test_each_second_of_training_has_its_share_and_a_quota_takes_from_it() -> None:
    shares = HostShares()
    shares.take(read(1, 0), training=False)
    shares.take(read(10, 1), training=True)
    assert shares.section() is None
    shares.take(read(11, 2.5), training=True)  # of 2 processors 1.5 were idle
    shares.take(read(12, 4.5, throttled=0.5, cpu=1.0), training=True)
    shares.take(read(13, 4.5, throttled=0.5, cpu=1.5), training=True)
    shares.take(read(14, 6.5), training=False)
    shares.take(read(15, 6.5), training=True)  # a resumed server; its training was over once
    found = shares.section()
    assert found is not None
    assert (found.seconds, found.least, found.median) == (3, 0.0, 0.75)
    assert found.first_percentile == pytest.approx(0.015)
    assert found.stolen == pytest.approx(0.05)
    assert found.throttled == pytest.approx(0.5)
    assert found.pressure == {"cpu": pytest.approx(0.5)}


class OneLink:
    """A plan as far as samples look at it."""

    links = (Link("worker-0", 0, Shape(10_000_000), Shape()), Link("server", 1))


def sample(time: float, count: int, backlog: int) -> np.ndarray:
    rows = np.zeros(2, COUNTS)
    rows["time"], rows["class_bytes"], rows["backlog_bytes"] = time, count, backlog
    rows["class_bytes"][1] = -1
    return rows


def test_the_fastest_second_and_the_longest_wait_of_a_limited_link() -> None:
    links = LinkSamples(OneLink(), ["server"])  # type: ignore[arg-type]
    links.take([0, 1], sample(0, 0, 900_000), training=False)
    assert links.fastest is None
    links.take([0, 1], sample(1, 0, 0), training=True)
    links.take([0, 1], sample(2, 1_250_000 + 65_536 + 6_250, 125_000), training=True)
    links.take([0, 1], sample(4, 2_000_000, 0), training=True)
    assert links.fastest == pytest.approx(1.0)
    assert links.backlog == pytest.approx(0.1)
