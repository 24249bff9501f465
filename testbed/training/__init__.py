"""Training as the devices of a run decide it: no socket, no clock, no thread.

The emulation, the virtual clock and the simulator drive the same objects, so that they cannot differ in
what a server, a worker or a peer does, only in when it happens.
"""
