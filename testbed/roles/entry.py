"""What the fork server loads once and what it runs in every node."""

import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch

from testbed.algorithms import ALGORITHMS
from testbed.channel import Channel
from testbed.learning import datasets
from testbed.learning.batches import Batches
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.nodes.fork_server import Role
from testbed.roles.evaluator import evaluate
from testbed.roles.server import Server
from testbed.roles.settings import Settings
from testbed.roles.worker import work
from testbed.streams import stream
from testbed.wire import WireError

FAILED = 1
"""Exit status of a role that ended with an error; the error itself went to the run's events."""


def load(arguments: Mapping[str, Any]) -> Role:
    """Load libraries, dataset and model; returns the function that runs a role with them."""
    torch.set_num_threads(1)
    settings = Settings(**arguments)
    dataset = datasets.load(
        settings.dataset, settings.scaling, settings.train_images, settings.seed
    )
    learner = Learner(settings.model, settings.batch_size)
    learner.parameters[:] = initialise(
        settings.model, settings.initialisation, stream(settings.seed, "initial")
    )
    _warm_up(settings, dataset, learner)

    def role(role_arguments: Mapping[str, Any], report: Channel) -> int:
        return _run(role_arguments, settings, dataset, learner, report)

    return role


def _warm_up(settings: Settings, dataset: datasets.Dataset, learner: Learner) -> None:
    """One gradient, so that what the libraries set up at first use is set up once for all nodes."""
    order = stream(settings.seed, "warm-up").permutation(len(dataset.train_images))
    batches = Batches(dataset, order, settings.batch_size, stream(settings.seed, "warm-up", 1))
    learner.gradient(*batches.next())


def _run(
    arguments: Mapping[str, Any],
    settings: Settings,
    dataset: datasets.Dataset,
    learner: Learner,
    report: Channel,
) -> int:
    number = int(arguments["number"])
    roles: dict[str, Callable[[], None]] = {
        "server": lambda: _serve(settings, learner, report),
        "evaluator": lambda: evaluate(settings, dataset, learner, report),
        "worker": lambda: work(settings, number, dataset, learner),
    }
    try:
        roles[arguments["role"]]()
    except Exception as error:
        if not isinstance(error, OSError | WireError):
            traceback.print_exc()
        text = f"{type(error).__name__}: {error}"[:1000]
        report.send({"event": text, "level": "error", "number": number})
        return FAILED
    return 0


def _serve(settings: Settings, learner: Learner, report: Channel) -> None:
    algorithm = ALGORITHMS[settings.algorithm["name"]]
    options = algorithm.options_type.model_validate(settings.algorithm)
    half = algorithm.server(
        options, learner.layout, learner.parameters.copy(), settings.learning_rate
    )
    Server(settings, half, report).serve()
