"""The names and numbers of a run's devices."""

SERVER_NAME = "server"
EVALUATOR_NAME = "evaluator"
COORDINATOR_NAME = "coordinator"
SERVER_NUMBER = -1
"""The parameter server's number where devices are given by number; workers and peers begin at 0."""


def peer_name(number: int) -> str:
    """Return the device name of a peer."""
    return f"peer-{number}"


def worker_name(number: int) -> str:
    """Return the device name of a worker."""
    return f"worker-{number}"
