"""The notebooks of ``examples`` run in a real kernel, from the experiment to what they show."""

import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat as nbformat_untyped
import pytest
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

from tests.docs.blocks import REPOSITORY
from tests.end_to_end.conftest import until

nbformat: Any = nbformat_untyped
NOTEBOOK = "experiment-to-figure.ipynb"
CAPTURE = "analyse-a-capture.ipynb"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the notebooks, and the experiment files beside it, as in the repository."""
    (tmp_path / "examples").mkdir()
    for notebook in (REPOSITORY / "examples").glob("*.ipynb"):
        shutil.copy(notebook, tmp_path / "examples")
    shutil.copytree(REPOSITORY / "experiments", tmp_path / "experiments")
    return tmp_path / "examples"


def outputs(cell: Any, kind: str) -> list[str]:
    return [one["data"][kind] for one in cell.outputs if kind in one.get("data", {})]


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """A real kernel; it starts once, as its imports take longer than most notebooks' cells."""
    client: Any = NotebookClient(nbformat.v4.new_notebook())
    client.create_kernel_manager()
    client.start_new_kernel()
    yield client.km
    run_sync(client.km.shutdown_kernel)(now=True)


@pytest.fixture
def client_in(kernel: Any) -> Iterator[Callable[[Any, Path], Any]]:
    """A function that returns a client of a notebook in a folder; the kernel forgets earlier names."""
    clients: list[Any] = []

    def client(notebook: Any, folder: Path) -> Any:
        begin = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(BEGIN.format(folder))])
        clients.extend(NotebookClient(one, km=kernel, timeout=120) for one in (begin, notebook))
        clients[-2].execute()
        return clients[-1]

    yield client
    for one in clients:
        if one.kc is not None:
            one.kc.stop_channels()  # their threads would outlive the test


BEGIN = """\
%cd -q {0}
%reset -f
"""


@pytest.fixture
def executed(folder: Path, client_in: Callable[[Any, Path], Any]) -> Callable[[str], Any]:
    """A function that returns a notebook, which has no outputs yet, with those of a kernel."""

    def execute(name: str) -> Any:
        notebook = nbformat.read(folder / name, as_version=4)
        assert all(not cell.get("outputs") for cell in notebook.cells)
        client_in(notebook, folder).execute()
        return notebook

    return execute


def cell_of(notebook: Any, begin: str) -> Any:
    (found,) = (cell for cell in notebook.cells if cell.source.startswith(begin))
    return found


def printed(cell: Any) -> str:
    return "".join(one["text"] for one in cell.outputs if one.get("name") == "stdout")


def test_the_notebook_goes_from_an_experiment_to_its_figures(
    folder: Path, executed: Callable[[str], Any]
) -> None:
    notebook = executed(NOTEBOOK)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    simulation = next(cell for cell in code if cell.source.startswith("runs ="))
    shown = outputs(simulation, "text/html")
    assert len(shown) == 3  # a line for each run, replaced as the run went on
    assert all("300/300 updates" in line and "<progress" in line for line in shown)
    curve = next(cell for cell in code if cell.source.endswith(".curve()"))
    assert "payload" in outputs(curve, "text/html")[0]
    drawn = [outputs(cell, "image/svg+xml") for cell in code if "figure()" in cell.source]
    assert [len(one) for one in drawn] == [1, 1]
    assert "adacomp-0.05" not in (folder / NOTEBOOK).read_text(encoding="utf-8")


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_a_capture_is_analysed(executed: Callable[[str], Any]) -> None:
    notebook = executed(CAPTURE)

    def shown(begin: str) -> str:
        outcome = cell_of(notebook, begin).outputs
        texts = (one.get("text") or one["data"]["text/plain"] for one in outcome)
        return "".join(texts)

    assert "PARAMETERS" in shown("messages =")
    updates, both, pushes = map(int, shown("pushes =").strip("()").split(","))
    assert updates == both == 24 and 24 <= pushes <= 28
    assert "% of what enters the server" in shown("import pyarrow")
    assert "###[ Push ]###" in shown("from scapy")
    last = shown("worst =").splitlines()
    packets, payload = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", last[-1]))
    assert packets > 0 and payload >= packets
    assert "again" in last[1]


def test_an_algorithm_of_ones_own_is_compared_and_swept(executed: Callable[[str], Any]) -> None:
    notebook = executed("own-algorithm.ipynb")
    shown = outputs(cell_of(notebook, "import testbed"), "text/html")
    assert all("200/200 updates" in line for line in shown) and "Turns-100" in shown[-1]
    compared = cell_of(notebook, "testbed.compare(runs, accuracy=60).figure()")
    assert "Turns-100" in outputs(compared, "image/svg+xml")[0]
    table = outputs(cell_of(notebook, "swept ="), "text/html")[-1]
    assert "algorithms.turns:Turns.parts" in table and "wire_bytes" in table
    assert "wrong.py, line 23: AttributeError" in printed(cell_of(notebook, "from pathlib"))


def test_traces_and_faults_slow_a_run_down(executed: Callable[[str], Any]) -> None:
    notebook = executed("traces-and-faults.ipynb")
    assert len(outputs(cell_of(notebook, "import matplotlib"), "image/png")) == 1
    (events,) = outputs(cell_of(notebook, "[event.event"), "text/plain")
    assert "worker-0: frozen for 8 s" in events and "worker-6: killed for 5 s" in events


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_a_program_runs_and_is_struck(executed: Callable[[str], Any]) -> None:
    notebook = executed("a-program.ipynb")
    assert "the three ledgers agree in 1 of 1 run" in printed(cell_of(notebook, "values ="))
    assert "reconciled:" in printed(cell_of(notebook, 'command("traffic"'))
    assert len(outputs(cell_of(notebook, "import matplotlib"), "image/png")) == 1
    (events,) = outputs(cell_of(notebook, "[event.event"), "text/plain")
    assert "frozen for 3 s" in events and "thawed" in events


def test_interrupting_the_kernel_ends_the_run_and_the_kernel_goes_on(
    tmp_path: Path, client_in: Callable[[Any, Path], Any]
) -> None:
    experiment = REPOSITORY / "experiments" / "quickstart.yaml"
    cells = [
        f"import testbed, threading\nexperiment = testbed.Experiment.load({str(experiment)!r})",
        "try:\n    testbed.simulate(experiment.with_(training__updates=10**6))\n"
        "except KeyboardInterrupt as interrupt:\n    print('ended:', interrupt)",
        "print(threading.active_count())",
        "short = experiment.with_(engine='simulation', algorithms=['asgd'], training__updates=20)\n"
        "testbed.sweep(short, {'seed': [1, 2]}, at_once=1)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    client = client_in(notebook, tmp_path)
    with client.setup_kernel():
        client.execute_cell(notebook.cells[0], 0)

        def interrupt() -> None:
            until(lambda: list(tmp_path.glob("runs/*/*/asgd/curve.csv")), "the run")
            time.sleep(0.3)
            client.km.provisioner.process.send_signal(signal.SIGINT)

        (other := threading.Thread(target=interrupt)).start()
        client.execute_cell(notebook.cells[1], 1)
        other.join()
        client.execute_cell(notebook.cells[2], 2)
        client.execute_cell(notebook.cells[3], 3)
    said = "".join(one.get("text", "") for one in notebook.cells[1].outputs)
    assert "ended: asgd interrupted: stopped by SIGINT" in said
    assert notebook.cells[2].outputs[0]["text"].strip().isdecimal()
    (shown,) = outputs(notebook.cells[3], "text/html")  # replaced as the sweep went on
    assert "2 of 2 runs" in shown and "<progress" in shown
    assert "<Sweep in" in outputs(notebook.cells[3], "text/plain")[-1]
