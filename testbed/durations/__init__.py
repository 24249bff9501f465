"""How long things take: computing, waiting, round trips.

Laws with a mean (``laws``), traces (``traces``), who is in which device class (``shares``), and for
each device a sampler on a random stream of its own (``devices``). Pure numpy: no clock, no sleep, and
no file but a trace's.
"""

from testbed.durations.devices import Change, DeviceDurations, Durations
from testbed.durations.laws import LAWS, Cvb, Law, QuantileLaw
from testbed.durations.traces import Trace, load_trace

__all__ = [
    "LAWS",
    "Change",
    "Cvb",
    "DeviceDurations",
    "Durations",
    "Law",
    "QuantileLaw",
    "Trace",
    "load_trace",
]
