"""Durations: the time that computing, waiting and round trips take.

``laws`` has laws with a mean, ``traces`` has traces, ``shares`` assigns devices to classes, and
``device_durations`` has a sampler for each device, on a random stream of its own. No clock, no sleep,
and no file but a trace's.
"""

from testbed.durations.device_durations import Change, DeviceDurations, Durations
from testbed.durations.laws import LAWS, Cvb, Law, QuantileLaw
from testbed.durations.traces import DurationTrace, load_trace

__all__ = [
    "LAWS",
    "Change",
    "Cvb",
    "DeviceDurations",
    "DurationTrace",
    "Durations",
    "Law",
    "QuantileLaw",
    "load_trace",
]
