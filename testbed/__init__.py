"""A containerised edge-emulation testbed: one parameter server, hundreds of workers, true bytes."""

__version__ = "0.1.0"
