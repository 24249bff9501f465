"""Training, as the devices of a run decide it: no socket, no clock, no thread."""
