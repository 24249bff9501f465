"""Carries out the runs of a sweep on a Ray cluster.

Ray does the scheduling, the retries after a node has died and the transport of results; what is here
says what a run needs and takes it home. A finished run is written into its directory on this host at
once, so that a node that dies afterwards takes nothing with it. The code travels as Ray's
``py_modules``, the data as objects of Ray's store; libraries have to be installed on every node.
"""

import contextlib
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.code_digest import package_digest
from testbed.errors import HostError, RunError
from testbed.experiment import load
from testbed.planning.node_plan import files_read
from testbed.planning.plan import plan
from testbed.ray_cluster.cluster_connection import connected, on_node
from testbed.ray_cluster.directory_transfer import unpack
from testbed.ray_cluster.travelling_data import Travelling, departing
from testbed.run_endings import is_complete
from testbed.runs.ending import signal_in, signals
from testbed.runs.versions import host, versions
from testbed.sweeps import ray_node
from testbed.sweeps.one_run import Result
from testbed.sweeps.pool import PERIOD, Display, SweepJob, SweepPool

RETRIES = 10
"""The number of times that a run is begun anew on another node after its node or process has died."""
_GRACE = 20.0
"""Seconds that interrupted runs have to end."""


class Cluster:
    """A Ray cluster that carries out runs; a context manager, like ``testbed.sweeps.pool.SweepPool``.

    Attributes:
        size: the number of its processors, each of which carries out one run at a time.
    """

    def __init__(self, address: str, memory: int) -> None:
        """Connect to a cluster.

        Args:
            address: ``auto`` for the cluster that this host is a node of, or an address that
                ``ray.init`` takes.
            memory: bytes that a run takes at most.

        Raises:
            HostError: Ray is not installed, or there is no cluster, or a node has other libraries.
        """
        self._ray = connected(address, f"--ray {address}")
        self._memory = memory
        self._name = uuid.uuid4().hex[:12]
        self._data: dict[str, Travelling] = {}
        # Ray prints that it begins a run anew, and standard output is for results only.
        self._redirection = contextlib.redirect_stdout(sys.stderr)
        self._nodes = [
            node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")
        ]
        self.size = round(sum(node["Resources"]["CPU"] for node in self._nodes))

    def __enter__(self) -> "Cluster":
        self._redirection.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            refs = [self._on(node, ray_node.clean, self._name) for node in self._alive()]
            self._ray.wait(refs, num_returns=len(refs), timeout=_GRACE)
        self._ray.shutdown()
        self._redirection.__exit__(*error)

    def check(self, job: SweepJob, display: Display, say: Callable[[str], None]) -> None:
        """Compare the nodes with this host, and a run on each kind of processor with the same run here.

        Args:
            job: a short run; its directory is not written.
            say: called with what was found.

        Raises:
            HostError: a node does not answer, or has other versions of libraries than this host.
            RunError: a run on this host's kind of processor has other parameters than here.
        """
        refs = [self._on(node, ray_node.described) for node in self._nodes]
        try:
            found = self._ray.get(refs)
        except self._ray.exceptions.RayError as error:
            why = str(error).strip().split("\n")[-1]
            raise HostError(f"a node of the cluster does not answer: {why}") from error
        expected, code = versions(), package_digest()
        kinds: dict[str | None, list[Any]] = {}
        for node, one in zip(self._nodes, found, strict=True):
            for name, version in expected.items():
                if (theirs := one["versions"].get(name)) != version:
                    raise HostError(
                        f"the node {node['NodeManagerAddress']} has {name} {theirs}, and this host "
                        f"{version}: install that there, since results depend on it"
                    )
            if one["code"] != code:
                raise HostError(
                    f"the node {node['NodeManagerAddress']} imports other code of the testbed than "
                    "this host: remove the testbed that is installed there, or install this one"
                )
            kinds.setdefault(one["cpu"], []).append(node)
        own = host()["cpu"]
        say(f"{len(self._nodes)} nodes with {self.size} processors, {', '.join(map(str, kinds))}")
        with tempfile.TemporaryDirectory(prefix="testbed-compare-") as folder:
            at_home = SweepJob(job.title, job.spec, Path(folder) / "here")
            with SweepPool(1) as pool:
                if pool.carry_out([at_home], display) is not None:
                    raise KeyboardInterrupt
            parameters = _parameters(at_home)
            for kind, nodes in kinds.items():
                there = SweepJob(job.title, job.spec, Path(folder) / "there")
                ref = self._on(nodes[0], ray_node.run_there, *self._arguments(there))
                self._end(there, ref)
                if _parameters(there) == parameters:
                    say(f"a short run on {kind} has the same parameters as on this host")
                elif kind == own:
                    raise RunError(
                        f"a short run on {nodes[0]['NodeManagerAddress']} has other parameters than "
                        "the same run here, on the same kind of processor"
                    )
                else:
                    say(
                        f"processors differ: a run on {kind} has other parameters than here, on {own}; "
                        "compare only runs of one kind of processor to the bit"
                    )

    def carry_out(self, jobs: Sequence[SweepJob], display: Display) -> int | None:
        """Carry out jobs on all nodes.

        Returns:
            The number of the signal that ended the work early; None if none came.
        """
        there = self._ray.remote(ray_node.run_there).options(
            num_cpus=1, memory=self._memory, max_retries=RETRIES
        )
        waiting = {there.remote(*self._arguments(job)): job for job in jobs}
        with signals() as wake_up:
            while waiting:
                ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=PERIOD)
                for ref in ready:
                    job = waiting.pop(ref)
                    self._end(job, ref)
                    display.ended(job)
                if (caught := signal_in(wake_up)) is not None:
                    self._cancel(list(waiting))
                    return caught
                display.show([])
        return None

    def _arguments(self, job: SweepJob) -> tuple[str, str, list[Travelling], str]:
        (one,) = plan(load.parse(job.spec, job.directory / "spec.yaml"))
        data = [self._travelling(path, dataset) for path, dataset in files_read(one)]
        return job.spec, job.directory.name, data, self._name

    def _travelling(self, path: Path, dataset: str | None) -> Travelling:
        if (known := self._data.get(str(path))) is None:
            known = self._data[str(path)] = departing(self._ray, path, dataset)
        return known

    def _on(self, node: Any, function: Callable[..., Any], *arguments: object) -> Any:
        """Start a function on a node; return Ray's reference to its result."""
        remote = self._ray.remote(function).options(num_cpus=0, scheduling_strategy=on_node(node))
        return remote.remote(*arguments)

    def _alive(self) -> Iterator[Any]:
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        return (node for node in self._nodes if node["NodeID"] in alive)

    def _end(self, job: SweepJob, ref: Any) -> None:
        """Take a finished run home, and set the job's result."""
        try:
            job.result, directory = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            job.result = Result("failed", str(error).strip().split("\n")[-1])
            return
        if directory is None:
            return
        try:
            unpack(directory, job.directory)
            # Its paths were those of the node.
            (job.directory / "spec.yaml").write_text(job.spec, encoding="utf-8")
        except OSError as error:
            why = f"{job.directory} cannot be written: {error.strerror or error}"
            job.result = Result("failed", why)

    def _cancel(self, refs: Sequence[Any]) -> None:
        """End all runs, and wait until they have ended."""
        for ref in refs:
            self._ray.cancel(ref)
        self._ray.wait(list(refs), num_returns=len(refs), timeout=_GRACE)


def _parameters(job: SweepJob) -> str | None:
    from testbed.results.reading.recorded_run import RecordedRun

    if job.result is None or not is_complete(job.result.ended):
        raise RunError(f"{job.title}: {job.result and job.result.reason}")
    return RecordedRun.load(job.directory).summary.parameters_sha256
