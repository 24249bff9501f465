"""Assignment of devices to shares, by the seed alone; no other draw changes it.

Device classes and changes have a shuffle each. It does not depend on what the durations are for, so a
device that computes slowly also waits long, and a later change of the same share reaches the same
devices as an earlier one: a factor can be undone by its inverse.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.random_streams import stream


def apportion(shares: Sequence[float], devices: int) -> list[int]:
    """Return the number of devices of each share, by largest remainder; their sum is ``devices``.

    Args:
        shares: fractions that add up to 1. Of equal remainders the first goes first.
    """
    # Rounded, since 0.29 · 100 is a little less than 29.
    quotas = [round(share * devices, 6) for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: devices - sum(counts)]:
        counts[i] += 1
    return counts


def classes(shares: Sequence[float], seed: int, devices: int) -> npt.NDArray[np.int64]:
    """Return the class, from 0, of every device: shape (devices,)."""
    result = np.empty(devices, np.int64)
    order = stream(seed, "device classes").permutation(devices)
    result[order] = np.repeat(np.arange(len(shares)), apportion(shares, devices))
    return result


def reached(share: float, seed: int, devices: int) -> frozenset[int]:
    """Return the devices that a change of this share of them reaches."""
    order = stream(seed, "device changes").permutation(devices)
    return frozenset(order[: apportion([share, 1 - share], devices)[0]].tolist())
