"""Training, as the devices of a run decide it: no socket, no clock, no thread.

The emulation, the virtual clock and the simulator drive the same objects, so what a server, a worker or
a peer does cannot differ between them, only when it happens.
"""
