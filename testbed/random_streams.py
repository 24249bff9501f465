"""Named random streams, from which every random number of an experiment comes.

A stream is keyed by the experiment's seed, its purpose and the device that draws from it, so that
adding a draw, a purpose or a device changes no other stream. There must be no global random state.
"""

import hashlib

import numpy as np


def stream(seed: int, purpose: str, device: int = 0, incarnation: int = 0) -> np.random.Generator:
    """Return the random stream of one purpose on one device.

    Args:
        seed: the experiment's seed, 0 or more.
        purpose: what the numbers are for, e.g. ``"waiting"``; any text.
        device: the device's number; streams of different devices are independent.
        incarnation: the number of times that the device has come back without its earlier state.
    """
    digest = hashlib.blake2b(purpose.encode(), digest_size=8).digest()
    key = [int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little"), device]
    key += [incarnation] if incarnation else []
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
