"""Simulation: the same experiment in one process, without containers and without sockets.

What is decided and computed is the emulation's own code (``testbed.training``, ``testbed.clock``,
``testbed.algorithms``, ``testbed.wire``); this package is the stage for it. Parameters, payload and
message bytes equal the emulation's under the virtual clock, to the bit. Wire bytes are modelled.
"""
