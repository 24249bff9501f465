"""Conflicts of the model with the rest of the file: images, buffers, batched simulations."""

from testbed.algorithms import algorithm_named
from testbed.errors import SpecError
from testbed.experiment.contents import Contents
from testbed.experiment.sections.section import Conflict
from testbed.learning.data.datasets import inputs_of
from testbed.learning.description import describe


def of_model(contents: Contents) -> list[Conflict]:
    """Return the conflicts of the section ``model``."""
    model, simulation = contents.model, contents.simulation
    try:
        described = describe(model.name, inputs_of(contents.dataset.name))
    except SpecError as error:
        return [(("model",), str(error))]
    found: list[Conflict] = []
    if described.path == "autograd" and (simulation.batched or simulation.device != "cpu"):
        key = "batched" if simulation.batched else "device"
        text = (
            f"{model.name} runs on autograd, and may draw random numbers for each mini-batch: its "
            "gradients are computed one after the other; take it out"
        )
        found.append((("simulation", key), text))
    if model.buffers == "shared":
        found += _of_shared_buffers(contents, described.buffers)
    return found


def _of_shared_buffers(contents: Contents, values: int) -> list[Conflict]:
    path = ("model", "buffers")
    if not values:
        return [(path, f"{contents.model.name} has no buffers: take it out")]
    text = (
        "does not move every entry by −α times a mean of whole gradients, as shared buffers need it to "
        "be averaged: use `buffers: none`"
    )
    return [
        (path, f"{options.name} {text}")
        for options in contents.algorithms
        if not algorithm_named(options.name).averages(options)
    ]
