"""The model in ``testbed plan``: its size, and how its gradients are computed."""

from testbed.experiment.model_conflicts import chosen
from testbed.learning import description
from testbed.learning.data.catalogue import inputs_of
from testbed.learning.models import layout
from testbed.planning.plan import Plan
from testbed.quantities import as_number
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


def layout_of(plan: Plan) -> Layout:
    """Return the positions of the model's tensors in the flat vector."""
    model = plan.spec.model
    return layout(chosen(model), inputs_of(plan.spec.dataset.choice), model.buffers)
