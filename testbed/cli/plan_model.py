"""The model in ``testbed plan``: its size, and how its gradients are computed."""

from collections.abc import Sequence

from testbed.experiment.model_conflicts import chosen
from testbed.learning import description
from testbed.learning.data.catalogue import inputs_of
from testbed.learning.models import layout
from testbed.planning import memory
from testbed.planning.plan import Plan
from testbed.quantities import as_bytes, as_number
from testbed.updates import Layout

_PATHS = {"fast": "on the fast path", "autograd": "by autograd"}


def describe(plan: Plan) -> list[str]:
    """Return the line about the model."""
    model = plan.spec.model
    described = description.describe(chosen(model), inputs_of(plan.spec.dataset.choice))
    parameters = as_number(described.parameters, "parameter")
    text = f"model {model.name}: {parameters}, gradients {_PATHS[described.path]}"
    if described.buffers:
        text += {
            "none": ", without running statistics",
            "shared": f", {described.buffers:,} values of running statistics at the server",
        }[model.buffers]
    return [text]


def at_server(plans: Sequence[Plan]) -> list[str]:
    """Return a line for each run whose servers keep vectors for each worker."""
    found = []
    for plan in plans:
        kept, workers = memory.at_server_per_worker(plan.spec), plan.settings.workers
        if kept:
            size = kept * 4 * layout_of(plan).total
            found.append(
                f"{plan.label}: the server keeps {as_number(kept, 'vector')} for each worker, "
                f"{as_bytes(size)}; {as_bytes(size * workers)} for all of them"
            )
    return found


def layout_of(plan: Plan) -> Layout:
    """Return the positions of the model's tensors in the flat vector."""
    model = plan.spec.model
    return layout(chosen(model), inputs_of(plan.spec.dataset.choice), model.buffers)
