"""The names and numbers of a run's devices."""

SERVER_NAME = "server"
"""The name of a run's only parameter server."""
EVALUATOR_NAME = "evaluator"
COORDINATOR_NAME = "coordinator"
HOME_HOST = ""
"""The name of the orchestrator's own host."""
BACKGROUND_NAME = "background"
"""The row of background traffic in tables of devices and of programs."""
SERVER_NUMBER = -1
"""The number of the (first) parameter server where devices are given by number.

Workers and peers begin at 0, and aggregators after them; the further servers' numbers are below this
one.
"""
_DIGITS = 9
"""The most digits of a device's number."""


def server_names(count: int) -> tuple[str, ...]:
    """Return the device names of ``count`` parameter servers."""
    return (SERVER_NAME,) if count == 1 else tuple(f"{SERVER_NAME}-{i}" for i in range(count))


def may_be_a_device(name: str) -> bool:
    """Return True for a name that the testbed gives to a device or machine of one run or another."""
    return name in (SERVER_NAME, EVALUATOR_NAME, COORDINATOR_NAME) or any(
        _is_numbered(name, role)
        for role in (SERVER_NAME, "worker", "peer", "aggregator", "machine")
    )


def _is_numbered(name: str, role: str) -> bool:
    """Return True for a role's name and a number, and False for ``server-room``."""
    before, dash, number = name.partition("-")
    is_number = number.isascii() and number.isdecimal() and len(number) <= _DIGITS
    return before == role and dash == "-" and is_number


def is_server(name: str) -> bool:
    """Return True if a device's name is that of a parameter server."""
    return name == SERVER_NAME or _is_numbered(name, SERVER_NAME)


def server_place(name: str) -> int:
    """Return the index of the parameter server with a name."""
    return 0 if name == SERVER_NAME else int(name.rpartition("-")[2])


def serving_place(name: str) -> tuple[bool, int]:
    """Return the place of a role that serves: servers by their index, and then aggregators."""
    number = name.rpartition("-")[2]
    return not is_server(name), int(number) if number.isdigit() else 0


def server_number(index: int) -> int:
    """Return the number of the parameter server with an index, from 0, where devices are numbered."""
    return SERVER_NUMBER - index


def server_index(number: int) -> int:
    """Return the index of the parameter server with a number."""
    return SERVER_NUMBER - number


def machine_name(number: int) -> str:
    """Return the name of the machine of a worker and of the server that is co-located with it."""
    return f"machine-{number}"


def is_aggregator(name: str) -> bool:
    """Return True if a device's name is that of an aggregator."""
    return _is_numbered(name, "aggregator")


def aggregator_name(index: int) -> str:
    """Return the device name of an aggregator."""
    return f"aggregator-{index}"


def is_peer(name: str) -> bool:
    """Return True if a device's name is that of a peer."""
    return _is_numbered(name, "peer")


def peer_name(number: int) -> str:
    """Return the device name of a peer."""
    return f"peer-{number}"


def is_worker(name: str) -> bool:
    """Return True if a device's name is that of a worker."""
    return _is_numbered(name, "worker")


def worker_name(number: int) -> str:
    """Return the device name of a worker."""
    return f"worker-{number}"


def struck_name(number: int, servers: int, workers: int) -> str:
    """Return the name of a device by its number: a worker, an aggregator or, below 0, a server.

    Args:
        servers: the number of servers; 0 where peers train.
        workers: the number of workers or peers, from which aggregators are numbered.
    """
    if number <= SERVER_NUMBER:
        return server_names(servers)[server_index(number)]
    if number >= workers:
        return aggregator_name(number - workers)
    return worker_name(number) if servers else peer_name(number)
