"""``make chaos-ray``: disturb runs over the nodes of a real Ray cluster, Ray's own daemons included.

Each seed draws an experiment as ``make chaos-hosts`` does, and one disturbance: the raylet, the GCS
server, the actor of a node, the agent that it has started, the process that drives Ray or the command
is killed, frozen for a time or frozen for good; a node is cut off. What has to hold is what
``bench.host_chaos`` says; Ray's own daemons may be left as Ray leaves them, and then are started again.
Prints a line for each seed: ``python -m bench.ray_chaos --seeds 17``.
"""

import dataclasses
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.chaos import of_runs
from bench.command import concluded
from bench.host_chaos import (
    COMMAND,
    GONE_WITHIN,
    WAY,
    Disturbance,
    asked,
    experiment,
    heed_signals,
    left_in_networks,
    of_next_run,
    of_run,
    told,
    within,
)
from bench.ray_nodes import NAMES, RayCluster, ray_cluster
from testbed.errors import TestbedError
from testbed.nodes import run_names
from testbed.signal_handlers import STOPPING

_SETTINGS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "15",
    "RAY_prestart_worker_first_driver": "0",
}
"""Ray gives up a node that is silent for 15 s, after what passes and before what does not; it starts
no workers that only cost time."""
_RAYLET, _GCS, _ACTOR = "raylet/raylet", "gcs/gcs_server", "ray::NodeAgent"
_OF_RAY = (_RAYLET, _GCS, _ACTOR)
_AGENT, _DRIVER = "testbed.ray_cluster.node_agent", f"{run_names.TITLES}ray-driver"
_OF_RUNS = (run_names.TITLES, _AGENT)
"""Parts of the command lines of processes that end with a run."""


def disturbance(seed: int) -> Disturbance:
    """Draw what happens in a seed's run: at its start, or in training, however long the start takes."""
    draw = np.random.default_rng([3133, seed])

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    starting, training = round(float(draw.uniform(0.2, 15)), 2), round(float(draw.uniform(0, 6)), 2)
    moment, since = one((starting, ""), (training, "training"))
    short, long = round(float(draw.uniform(0.3, 8)), 2), round(float(draw.uniform(24, 30)), 2)
    head, *others = NAMES
    other = one(*others)
    whom, host = one(
        (_RAYLET, other),
        (_RAYLET, head),
        (_GCS, head),
        (_ACTOR, other),
        (_AGENT, other),
        (_DRIVER, ""),
        (COMMAND, ""),
        (WAY, other),
    )
    what, lasting, number = "kill", 0.0, signal.SIGKILL
    if whom == WAY:
        what, lasting = "cut", one(short, long)
    elif whom == COMMAND:
        what, number = one((what, number), *(("signal", one) for one in STOPPING))
    elif draw.random() < 0.5:
        what, lasting = "freeze", one(short, long, *([0.0] if whom in _OF_RAY else []))
    return Disturbance(what, whom, host, moment, lasting, number, since)


def _left(cluster: RayCluster) -> list[str]:
    """Return what of runs is left on the nodes."""
    found = left_in_networks(cluster.hosts)
    for node in cluster.nodes.values():
        # Only its raylet ends an actor's process.
        parts = (*_OF_RUNS, _ACTOR) if node.runs("raylet") else _OF_RUNS
        lines = node.commands().values()
        found += [f"process {line[:60]}" for line in lines if any(one in line for one in parts)]
        folders = (*node.files("testbed-*"), *node.files("testbed-*", "/var/tmp"))
        found += [f"folder {one}" for one in folders]
        namespace = Path(f"/proc/{node.first}/ns/pid").stat().st_ino
        found += [path for one, path in of_runs().items() if f"-{namespace}-" in one]
    return found


def _complaints(cluster: RayCluster) -> list[str]:
    """Return the tracebacks in what agents have said on the nodes, which Ray has put into its logs."""
    found = []
    for name, node in cluster.nodes.items():
        for log in node.files("ray/session_*/logs/worker-*.err"):
            said = log.read_text(errors="replace")
            if "Traceback" in said and "testbed" in said:
                found.append(f"a traceback of host {name}: {said[-1500:]}")
            log.write_text("")
    return found


def try_out(cluster: RayCluster, seed: int, folder: Path) -> list[str]:
    """Carry out a seed's run, and the next one; return what does not hold, empty if all holds.

    Raises:
        TestbedError: a simulation has failed.
        SystemExit: the cluster does not come up again.
    """
    hosts = dataclasses.replace(cluster.hosts, folder=folder)
    spec = experiment(seed)
    path = folder / f"{spec['name']}.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    what = disturbance(seed)
    found = of_run(hosts, spec, path, what)
    if not within(GONE_WITHIN, lambda: not _left(cluster)):
        found.append(f"left: {_left(cluster)}")
    found += _complaints(cluster)
    if what.whom in (*_OF_RAY, WAY):
        cluster.restore()
    found += of_next_run(hosts, path)
    if not within(GONE_WITHIN, lambda: not _left(cluster)):
        found.append(f"left by the next run: {_left(cluster)}")
    return found + _complaints(cluster)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try seeds; return the exit status."""
    options = asked("bench.ray_chaos", __doc__, arguments)
    heed_signals()
    failed = []
    with tempfile.TemporaryDirectory(prefix="testbed-ray-chaos-") as made:
        base = (options.keep or Path(made)).resolve()
        base.mkdir(parents=True, exist_ok=True)
        with ray_cluster(base, settings=_SETTINGS) as cluster:
            for seed in options.seeds:
                began = time.monotonic()
                folder = base / f"{seed}"
                folder.mkdir()
                try:
                    found = try_out(cluster, seed, folder)
                except (SystemExit, TestbedError) as error:
                    found = [f"{error}"]
                if told(experiment(seed), disturbance(seed), found, time.monotonic() - began):
                    failed.append(seed)
    return concluded(len(options.seeds), failed, "seeds hold")


if __name__ == "__main__":
    sys.exit(main())
