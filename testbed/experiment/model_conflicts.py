"""Conflicts of model, optimisation and dealt mini-batches with the rest of the file."""

from typing import TYPE_CHECKING

from testbed.algorithms import algorithm_named, has
from testbed.errors import SpecError, TestbedError
from testbed.experiment.contents import Contents
from testbed.experiment.sections.learning import ModelSpec
from testbed.experiment.sections.section import Conflict
from testbed.learning.data.catalogue import facts_of, inputs_of
from testbed.learning.inputs import Inputs
from testbed.updates import Layout

# They import torch, which takes more than a second: only for files that are right so far.
if TYPE_CHECKING:
    from testbed.learning.description import Description
    from testbed.learning.models import Model


def chosen(section: ModelSpec) -> "Model":
    """Return the model that a section chooses."""
    from testbed.learning.models import model_named

    return model_named(section.name, section.options)


def described(contents: Contents) -> "Description":
    """Return the description of the model that an experiment trains.

    Raises:
        DataError: the dataset cannot be read.
        SpecError: the model does not take its examples.
    """
    from testbed.learning.description import describe

    loss = None if contents.loss is None else contents.loss.name
    return describe(chosen(contents.model), inputs_of(contents.dataset.choice), loss)


def layout_of(contents: Contents) -> Layout:
    """Return the positions of the model's tensors in the flat vector of an experiment.

    Raises:
        DataError: the dataset cannot be read.
    """
    from testbed.learning.models import layout

    model = contents.model
    return layout(chosen(model), inputs_of(contents.dataset.choice), model.buffers)


def of_model(contents: Contents) -> list[Conflict]:
    """Return the conflicts of the section ``model``."""
    model, simulation = contents.model, contents.simulation
    found: list[Conflict] = []
    try:
        inputs = inputs_of(contents.dataset.choice)
    except TestbedError:
        # A resolved spec outlives its dataset; a run that needs it reports the error itself.
        return [*_of_optimisation(contents), *_of_stream(contents)]
    if loss := _of_loss(contents, inputs):
        return loss
    try:
        about = described(contents)
    except SpecError as error:
        return [(("model",), str(error))]
    if contents.training.augmentation is not None and not inputs.are_images:
        text = "the examples are no images, which could be cut or mirrored: take it out"
        found.append((("training", "augmentation"), text))
    if simulation.batched or simulation.device != "cpu":
        found += _of_batches(contents, about)
    found += [*_of_optimisation(contents), *_of_stream(contents)]
    if model.buffers != "none" and not about.buffers:
        found.append((("model", "buffers"), f"{model.name} has no buffers: take it out"))
    elif model.buffers == "shared":
        found += _of_shared_buffers(contents)
    return found


def _of_loss(contents: Contents, inputs: Inputs) -> list[Conflict]:
    from testbed.learning.losses import loss_named

    name = None if contents.loss is None else contents.loss.name
    try:
        loss = loss_named(name, {}, None, inputs)
        facts = facts_of(contents.dataset.choice)
    except TestbedError as error:
        return [(("loss",), str(error))]
    if loss.is_classification and facts is not None and facts.labels.dtype.kind == "f":
        text = "the targets are no labels, which can be classified: name a loss of your own"
        return [(("loss",), text)]
    return []


def _of_batches(contents: Contents, about: "Description") -> list[Conflict]:
    """Return the conflict of gradients that are computed together, if there is one."""
    key = "batched" if contents.simulation.batched else "device"
    name, text = contents.model.name, None
    if not about.together:
        text = (
            f"{name} may draw random numbers for each mini-batch: its gradients are computed one "
            "after the other; take it out"
            if about.may_draw
            else "gradients are computed together for classification only: take it out"
        )
    elif contents.model.buffers == "per-worker":
        text = "buffers that each worker keeps need its gradients one after the other: take it out"
    return [] if text is None else [(("simulation", key), text)]


def _of_optimisation(contents: Contents) -> list[Conflict]:
    found: list[Conflict] = []
    schedule = contents.training.schedule
    if schedule is None:
        return found
    path = ("training", "schedule")
    for options in contents.algorithms:
        algorithm = algorithm_named(options.name)
        if not algorithm.scheduled:
            text = f"{options.name} has a constant learning rate: take the schedule out"
            found.append((path, text))
        elif schedule.unit == "epochs" and (
            algorithm.gradients_per_update(options, contents.conditions(options)) is None
        ):
            text = f"the updates of {options.name} have no known number of gradients: use updates"
            found.append(((*path, "unit"), text))
    return found


def _of_stream(contents: Contents) -> list[Conflict]:
    if contents.partition.kind != "stream":
        return []
    path = ("partition",)
    others = [one.name for one in contents.algorithms if not has(one.name, "server")]
    others += [one.name for one in contents.algorithms if has(one.name, "aggregator")]
    found: list[Conflict] = []
    if others:
        text = f"the devices of {others[0]} call no server, which deals the stream: use `same`"
        found.append((path, text))
    if contents.devices.servers > 1:
        found.append((path, "one server deals the stream, and there are several: use `same`"))
    return found


def _of_shared_buffers(contents: Contents) -> list[Conflict]:
    path = ("model", "buffers")
    text = (
        "does not move buffers by −α times a mean of whole gradients, as shared buffers need it to be "
        "averaged: use `buffers: none`"
    )
    return [
        (path, f"{options.name} {text}")
        for options in contents.algorithms
        if not algorithm_named(options.name).averages(options)
    ]
