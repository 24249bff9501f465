"""The same experiment in one process, without a container and without a socket.

What is decided and computed is the emulation's own code (``testbed.roles``, ``testbed.clock``,
``testbed.algorithms``, ``testbed.wire``); here is the stage that it is played on. Parameters, payload
and message bytes equal the emulation's under the virtual clock, to the bit. Wire bytes are modelled.
"""
