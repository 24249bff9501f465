"""A testbed that emulates distributed learning in containers and counts every byte sent.

```python
import testbed

spec = testbed.Experiment.load("quickstart.yaml").with_(training__updates=500)
runs = testbed.simulate(spec)
runs.curve()
testbed.compare(runs).figure()
```

Importing this package imports nothing else: a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from testbed.version import VERSION

if TYPE_CHECKING:
    from testbed.errors import TestbedError
    from testbed.library.comparing import Comparison, compare
    from testbed.library.experiment import Experiment
    from testbed.library.figure import Figure
    from testbed.library.reading import Run, Runs, open_run, open_runs
    from testbed.library.running import run, simulate
    from testbed.library.sweeping import Swept, sweep

__version__ = VERSION
__all__ = [
    "Comparison",
    "Experiment",
    "Figure",
    "Run",
    "Runs",
    "Swept",
    "TestbedError",
    "__version__",
    "compare",
    "open_run",
    "open_runs",
    "run",
    "simulate",
    "sweep",
]

_MODULES = {
    "Comparison": "testbed.library.comparing",
    "Experiment": "testbed.library.experiment",
    "Figure": "testbed.library.figure",
    "Run": "testbed.library.reading",
    "Runs": "testbed.library.reading",
    "Swept": "testbed.library.sweeping",
    "TestbedError": "testbed.errors",
    "compare": "testbed.library.comparing",
    "open_run": "testbed.library.reading",
    "open_runs": "testbed.library.reading",
    "run": "testbed.library.running",
    "simulate": "testbed.library.running",
    "sweep": "testbed.library.sweeping",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'testbed' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
