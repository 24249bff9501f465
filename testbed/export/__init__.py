"""Recorded runs for the tools in which people keep their experiments.

``exported_run`` says what is exported of a run; ``tensorboard_files``, ``mlflow_runs``,
``wandb_folders`` and ``csv_tables`` each write it for one tool. The first three are extras of the
package and are imported only where they are used.
"""

from typing import Literal, TypeAlias

Tool: TypeAlias = Literal["tensorboard", "mlflow", "wandb", "csv"]
"""The tools that runs can be exported to, and CSV."""
