"""The uplinks of each class, from samples that come in parts."""

import numpy as np

from testbed.metrics.uplinks import UplinkMeter
from testbed.runs.class_records import DeviceClasses
from traffic.counters import COUNTS

CLASSES = DeviceClasses(("fast", "slow"), np.array([0, 1, 1]))


def sample(time: float, sent: list[int], waiting: int = 0, by_class: bool = True) -> np.ndarray:
    rows = np.zeros(len(sent), COUNTS)
    rows["time"], rows["tx_bytes"], rows["tx_dropped"] = time, np.array(sent) - 1, 1
    rows["class_bytes"] = sent if by_class else -1
    rows["class_dropped"] = 2 if by_class else -1
    rows["backlog_bytes"] = waiting if by_class else -1
    return rows


def test_shaped_uplinks_have_capacity_utilisation_and_backlog() -> None:
    meter = UplinkMeter(CLASSES, [8_000, 8_000, 16_000])
    first = sample(10.0, [1000, 2000, 3000])
    assert meter.add([0, 1], first[:2]) is None
    told = meter.add([2], first[2:])
    assert told is not None and told.capacity is not None and told.backlog is not None
    assert told.transmitted.tolist() == [1000, 5000]
    assert told.capacity.tolist() == [1000, 3000]
    assert told.dropped.tolist() == [3, 6]
    assert told.utilisation is None  # it takes two samples
    told = meter.add(range(3), sample(12.0, [2000, 3000, 5000], waiting=7))
    assert told is not None and told.utilisation is not None and told.backlog is not None
    assert told.utilisation.tolist() == [0.5, 0.5]
    assert told.backlog.tolist() == [7, 14]


def test_unshaped_uplinks_have_no_capacity() -> None:
    meter = UplinkMeter(CLASSES, [None, None, None])
    meter.add(range(3), sample(1.0, [1, 1, 1], by_class=False))
    told = meter.add(range(3), sample(2.0, [101, 201, 301], by_class=False))
    assert told is not None
    assert told.transmitted.tolist() == [100, 500]
    assert told.dropped.tolist() == [1, 2]
    assert (told.capacity, told.utilisation, told.backlog) == (None, None, None)


def test_devices_of_several_hosts_are_sampled_in_any_order_and_a_lost_host_is_not_waited_for() -> (
    None
):
    meter = UplinkMeter(CLASSES, [8_000, 8_000, 16_000])
    assert meter.add([2, 0], sample(1.0, [3, 1, 2])[:2]) is None
    told = meter.add([1], sample(1.0, [2, 0, 0])[:1])
    assert told is not None and told.transmitted.sum() == 6
    told = meter.add([0, 2], sample(2.0, [11, 13, 0])[:2])
    assert told is not None and told.transmitted.sum() == 11 + 2 + 13
    told = meter.add([0, 2], sample(3.0, [21, 23, 0])[:2])  # nothing comes of the other any more
    assert told is not None and told.transmitted.sum() == 21 + 2 + 23
