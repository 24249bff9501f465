"""From a spec to what will be created: devices, addresses, links, and what each role is told."""

import secrets
from dataclasses import dataclass

from testbed.errors import SpecError
from testbed.experiment.spec import Spec
from testbed.network.addresses import MOST_LINKS, Link, Shape
from testbed.roles.settings import EVALUATOR, SERVER, Settings, worker_name

PRIVATE_MEMORY = 25 * 2**20
"""Bytes of private memory to count on per device."""
SIMULATED_MEMORY = 2 * 2**20
"""Bytes to count on per simulated worker: what it computes at, and the server's copy of counters."""
SHARED_MEMORY = 2**30
"""Bytes to count on for the libraries, the data and the server, once per run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, ready to be carried out.

    Attributes:
        spec: the resolved spec, with one algorithm.
        label: the algorithm's label, and the run directory's name.
        settings: what the roles are told.
        links: one per device; the server's first, then the evaluator's, then the workers'.
    """

    spec: Spec
    label: str
    settings: Settings
    links: tuple[Link, ...]

    @property
    def workers(self) -> dict[str, int]:
        """The workers' numbers by device name."""
        return {worker_name(i): i for i in range(self.settings.workers)}

    @property
    def memory(self) -> int:
        """Bytes of memory the run may need."""
        each = PRIVATE_MEMORY if self.spec.engine == "emulation" else SIMULATED_MEMORY
        return SHARED_MEMORY + each * len(self.links)

    @property
    def open_files(self) -> int:
        """The most descriptors one of its processes will hold: the agent, three per device."""
        return 3 * len(self.links) + 64


def plan(spec: Spec) -> list[Plan]:
    """The runs of an experiment, one per algorithm.

    Raises:
        SpecError: more workers than the address plan has links for.
    """
    if spec.devices.workers + 2 > MOST_LINKS:
        raise SpecError(
            f"devices.workers: {spec.devices.workers} is more than the {MOST_LINKS - 2} that one "
            "host's address plan has links for; use fewer"
        )
    return [_plan_one(run, label) for label, run in spec.runs().items()]


def _plan_one(spec: Spec, label: str) -> Plan:
    network = spec.network
    virtual = spec.clock == "virtual"
    # Under the virtual clock a message's time is computed, and the links carry it as they can.
    uplink = Shape() if virtual else Shape(network.uplink, network.delay, network.loss)
    downlink = Shape() if virtual else Shape(network.downlink)
    # The server's own link shapes nothing (what reaches it is counted there), the evaluator's
    # neither: it is the instrument, not part of what is measured.
    links = [Link(SERVER, 0), Link(EVALUATOR, 1)]
    links += [Link(worker_name(i), 2 + i, uplink, downlink) for i in range(spec.devices.workers)]
    (algorithm,) = spec.algorithms
    encoding = algorithm.encoding or spec.encoding
    return Plan(
        spec,
        label,
        Settings(
            seed=spec.seed,
            workers=spec.devices.workers,
            dataset=spec.dataset.name,
            scaling=spec.dataset.scaling,
            train_images=spec.dataset.train_images,
            model=spec.model.name,
            initialisation=spec.model.initialisation,
            batch_size=spec.training.batch_size,
            learning_rate=spec.training.learning_rate,
            updates=spec.training.updates,
            algorithm=algorithm.model_dump(mode="json"),
            encoding=encoding.model_dump(mode="json"),
            pulls=algorithm.pulls or spec.pulls,
            compute=spec.compute.plain(),
            waiting=spec.waiting.plain(),
            evaluate_every=spec.evaluation.every,
            evaluation_images=spec.evaluation.images,
            clock=spec.clock,
            uplink=network.uplink,
            downlink=network.downlink,
            delay=network.delay,
            server_address=links[0].device_address,
            secret=secrets.token_hex(32),
        ),
        tuple(links),
    )
