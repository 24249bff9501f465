"""A testbed that emulates distributed learning in containers and counts every byte sent."""

__version__ = "0.1.0"
