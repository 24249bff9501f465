"""Connect to a Ray cluster; the code travels as Ray's ``py_modules``."""

import logging
import socket
from typing import Any

from testbed.code_digest import package_folders
from testbed.errors import HostError
from testbed.planning.node_plan import ONE_THREAD


def connected(address: str, option: str) -> Any:
    """Connect this process to a cluster, and return the module ``ray``.

    Args:
        address: ``auto`` for the cluster that this host is a node of, or an address that ``ray.init``
            takes.
        option: what a person has written to have it, for errors.

    Raises:
        HostError: Ray is not installed, or there is no cluster.
    """
    try:
        import ray
    except ImportError:
        raise HostError("Ray is not installed: `pip install 'testbed[ray]'`") from None
    packages = [str(folder) for folder in package_folders()]
    environment = {"py_modules": packages, "env_vars": dict(ONE_THREAD)}
    try:
        if address != "auto":
            host_name, colon, port = address.rpartition(":")
            if not (colon and port.isascii() and port.isdigit()):
                raise ValueError(f"{address} is no HOST:PORT")
            # Ray itself tries for minutes.
            socket.create_connection((host_name, int(port)), 5).close()
        ray.init(
            address=address,
            runtime_env=environment,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = str(error).split("\n", maxsplit=1)[0]
        raise HostError(
            f"{option}: there is no Ray cluster, or this host is no node of it ({why}): start one by "
            "`ray start --head`, and on every other node `ray start --address=HEAD:6379`"
        ) from None
    return ray


def on_node(node: Any) -> Any:
    """Return the scheduling strategy of what runs on a node, and nowhere else."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
