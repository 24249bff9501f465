"""The model in ``testbed plan``: its size, and how its gradients are computed."""

from collections.abc import Sequence

from testbed.experiment.model_conflicts import described, layout_of
from testbed.learning.data.catalogue import inputs_of
from testbed.planning import memory
from testbed.planning.plan import Plan
from testbed.quantities import as_bytes, as_number

_PATHS = {"fast": "on the fast path", "autograd": "by autograd"}


def describe(plan: Plan) -> list[str]:
    """Return the lines about the model, and about what it learns if that is no classification."""
    model = plan.spec.model
    about = described(plan.spec)
    parameters = as_number(about.parameters, "parameter")
    text = f"model {model.name}: {parameters}, gradients {_PATHS[about.path]}"
    if about.buffers:
        text += {
            "none": ", without running statistics",
            "shared": f", {about.buffers:,} values of running statistics at the server",
            "per-worker": f", each worker keeps {about.buffers:,} values of running statistics",
        }[model.buffers]
    training, inputs = plan.settings.training, inputs_of(plan.spec.dataset.choice)
    loss = training.loss or ("next-token" if inputs.tokens else "classification")
    if training.measure is None and loss == "classification":
        return [text]
    measured = f", evaluations measure {training.measure.column}" if training.measure else ""
    return [text, f"loss {loss} of {inputs}{measured}"]


def at_server(plans: Sequence[Plan]) -> list[str]:
    """Return a line for each run whose servers keep vectors for each worker."""
    found = []
    for plan in plans:
        kept, workers = memory.at_server_per_worker(plan.spec), plan.settings.workers
        if kept:
            size = kept * 4 * layout_of(plan.spec).total
            found.append(
                f"{plan.label}: the server keeps {as_number(kept, 'vector')} for each worker, "
                f"{as_bytes(size)}; {as_bytes(size * workers)} for all of them"
            )
    return found
