"""``make scale``: measure the start-up time and the memory of devices, by their number.

Runs follow one another, each started by the command that a person would use and observed from outside:
a model on links with rates, until the server has applied three updates per worker on average. The
columns of the table, with times from the run's ``events.jsonl``:

- nodes: until every device's namespaces are made; libraries are loaded meanwhile;
- network: from there until every link is built and the capture receives;
- devices: from there until every worker has connected to the server, and training begins;
- of the processors until then: CPU seconds of the orchestrator, of the agent (which builds the links),
  of the fork server and of all devices together;
- removed: from the order to end until no process, link or control group is left;
- private: bytes of memory that are a worker's own, median of a sample, during training;
- all: the greatest decrease of the host's available memory, per device: with the kernel's namespaces,
  page tables and socket buffers, and a share of the libraries, the data and the server.

Writes a record, and puts its table into a page: see ``python -m bench.scale --help``.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.__main__ import private_memory, write_idx
from bench.hosts import TESTBED, joined_hosts
from testbed.runs.versions import commit, host, versions
from testbed.telemetry.event_kinds import EventKind

ROWS = "cnn:100,cnn:200,cnn:500,cnn:1000,mlp:1000,mlp:2000"
"""For each row the model, the workers and, after further colons, the runtime and the number of hosts
(network namespaces of this machine, as for ``make hosts``). Two thousand workers of the CNN need more
memory than most workstations have."""
UPDATES = 3
"""Updates per worker, unless asked otherwise: few, because the first ones already copy all pages that
later ones write to."""
IMAGES = 60_000
MTU = 1600
"""Bytes of a packet between hosts: no packet of a link is fragmented."""
SAMPLE = 20
"""Processes whose private memory is read; for each, the kernel walks its page tables."""
FOLDER = Path(__file__).parents[1] / "docs"
_BEGIN, _END = "<!-- the table: begin -->", "<!-- the table: end -->"

SPEC = """
name: scale
dataset: {dataset}
model: {model}
clock: {clock}
training: {{updates: {updates}}}
algorithms: [{{name: adacomp, ratio: 0.01}}]
devices: {{workers: {workers}, runtime: {runtime}}}
network: {{uplink: 10mbit, downlink: 100mbit}}
waiting: {{distribution: exponential, mean: 100ms}}
evaluation: {{every: {updates}, images: 1000}}
"""


@dataclass(frozen=True, slots=True)
class Load:
    """A run that is measured; ``updates`` are those of each worker, on average."""

    workers: int
    model: str
    runtime: str
    hosts: int
    clock: str
    updates: int


def measure(folder: Path, load: Load) -> dict[str, Any]:
    """Carry out one run; return a row of the record, in seconds and bytes.

    Processor seconds are those of the host on which the run is started; the other hosts' memory is
    counted, because it is this machine's.

    Raises:
        SystemExit: the run did not complete, or its ledgers differ.
    """
    workers, hosts = load.workers, load.hosts
    spec = folder / f"{workers}.yaml"
    of = asdict(load) | {"updates": load.updates * workers}
    spec.write_text(SPEC.format(dataset=folder / "idx", **of))
    command = [*TESTBED, "run", str(spec), "--out", str(folder), "--json", "--no-report"]
    before = least = psutil.virtual_memory().available
    began = time.monotonic()
    private: list[int] = []
    processors: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        if hosts > 1:
            names = [f"host-{number}" for number in range(1, hosts)]
            home = stack.enter_context(joined_hosts(folder, names, MTU)).home
            command += ["--hosts", str(folder / "hosts.yaml")]
            command = ["nsenter", f"--net=/proc/{home.process.pid}/ns/net", "--", *command]
        errors = stack.enter_context((folder / "errors").open("w+b"))
        process = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        )
        assert process.stdout is not None
        while process.poll() is None:
            time.sleep(0.2)
            least = min(least, psutil.virtual_memory().available)
            if b": training" in (folder / "errors").read_bytes():
                processors = processors or processor_seconds(process.pid)
                # The last whole sample counts: its workers have computed, and none has ended.
                sample = private_memory(process.pid, min(SAMPLE, workers))
                over = b": finishing" in (folder / "errors").read_bytes()
                if len(sample) == min(SAMPLE, workers) and not over:
                    private = sample
        ended = time.monotonic()
        told = json.loads(process.stdout.read() or b"{}")
    if process.returncode:
        complaint = (folder / "errors").read_text().splitlines()[-1]
        raise SystemExit(f"scale: {' '.join(command)}: {complaint}")
    (summary,) = told["runs"]
    if not summary["traffic"]["reconciled"]:
        raise SystemExit(f"scale: ledgers differ: {summary['traffic']['differences'][:3]}")
    directory = Path(told["directory"]) / summary["algorithm"]
    lines = (directory / "events.jsonl").read_text().splitlines()
    events = {event["kind"]: event for event in map(json.loads, lines)}
    at = {kind: float(event["time"]) for kind, event in events.items()}
    row = {
        **asdict(load),
        "nodes_seconds": at[EventKind.NODES_MADE],
        "network_seconds": at[EventKind.NETWORK_BUILT] - at[EventKind.NODES_MADE],
        "devices_seconds": at[EventKind.TRAINING_BEGAN] - at[EventKind.NETWORK_BUILT],
        "training_begins_seconds": at[EventKind.TRAINING_BEGAN],
        "processor_seconds": processors,
        "updates_per_second": summary["updates_per_second"],
        "removed_seconds": float(events[EventKind.REMOVED]["event"].split()[-2]),
        "command_seconds": ended - began,
        "private_bytes": statistics.median(private) if private else None,
        "all_bytes": (before - least) / (workers + 2),
    }
    print(" | ".join(_cells(row)), flush=True)
    return row


def processor_seconds(pid: int) -> dict[str, float]:
    """Return the CPU seconds of each part of the run that process ``pid`` drives."""

    def of(*processes: psutil.Process) -> float:
        total = 0.0
        for process in processes:
            with contextlib.suppress(psutil.Error):  # it has just ended
                total += sum(process.cpu_times()[:2])
        return total

    orchestrator = psutil.Process(pid)
    agent = max(orchestrator.children(), key=lambda one: len(one.children(recursive=True)))
    fork_server = max(agent.children(), key=lambda one: len(one.children()))
    return {
        "orchestrator": of(orchestrator),
        "agent": of(agent),
        "fork server": of(fork_server),
        "devices": of(*fork_server.children()),
    }


_PARTS = ("orchestrator", "agent", "fork server", "devices")
_HEADING = (
    "runtime",
    "hosts",
    "model",
    "workers",
    "nodes",
    "network",
    "devices",
    "training begins after",
    "of the processors until then: " + ", ".join(_PARTS),
    "updates/s",
    "removed",
    "private per worker",
    "all per device",
)


def _cells(row: Mapping[str, Any]) -> list[str]:
    seconds = ("nodes", "network", "devices", "training_begins")
    private = row["private_bytes"]
    return [
        row["runtime"],
        f"{row.get('hosts', 1)}",
        row["model"],
        f"{row['workers']:,}",
        *(f"{row[f'{name}_seconds']:.1f} s" for name in seconds),
        ", ".join(f"{row['processor_seconds'][part]:.1f} s" for part in _PARTS),
        f"{row['updates_per_second']:.0f}",
        f"{row['removed_seconds']:.1f} s",
        f"{private / 1e6:.1f} MB" if private else "—",
        f"{row['all_bytes'] / 1e6:.1f} MB",
    ]


def table(record: Mapping[str, Any]) -> str:
    """Return the record's rows as a Markdown table."""
    lines = [_HEADING, ["---"] * len(_HEADING), *map(_cells, record["rows"])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write_page(page: Path, record: Mapping[str, Any]) -> None:
    """Replace the table in a page by the record's."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    told = record["host"]
    made = (
        f"{told['cpus']} processors, "
        f"{told['memory_bytes'] / 2**30:.0f} GiB of memory, {told['kernel']}; measured by "
        f"`{record['command']}` at commit {record['commit'] or 'unknown'}."
    )
    text = f"{before}{_BEGIN}\n{table(record)}\n\n{made}\n{_END}{after}"
    page.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print, or read a record; write the record and the page that are asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--rows", default=ROWS, help="cnn:100,mlp:200,cnn:50:docker,mlp:200:namespaces:2"
    )
    parser.add_argument("--clock", choices=("wall", "virtual"), default="wall")
    parser.add_argument("--updates", type=int, default=UPDATES, help="of each worker, on average")
    parser.add_argument("--record", type=Path, help="JSON to write, e.g. docs/scale.json")
    parser.add_argument("--page", type=Path, help="page to write the table into, docs/scale.md")
    parser.add_argument("--from-record", type=Path, help="measure nothing: the page from a record")
    asked = parser.parse_args(arguments)
    if asked.page and _BEGIN not in (asked.page.read_text("utf-8") if asked.page.exists() else ""):
        parser.error(f"--page {asked.page}: it is no page with {_BEGIN} and {_END}")
    if asked.from_record:
        record = json.loads(asked.from_record.read_text(encoding="utf-8"))
    else:
        record = {
            "command": "python -m bench.scale " + " ".join(arguments or sys.argv[1:]),
            "host": {key: value for key, value in host().items() if key != "name"},
            "commit": commit(),
            "versions": versions(),
            "rows": [],
        }
        print(" | ".join(_HEADING), flush=True)
        for row in asked.rows.split(","):
            model, workers, *rest = row.split(":")
            runtime = rest[0] if rest else "namespaces"
            hosts = int(rest[1]) if len(rest) > 1 else 1
            with tempfile.TemporaryDirectory(prefix="testbed-scale-") as name:
                folder = Path(name)
                (folder / "idx").mkdir()
                write_idx(folder / "idx", IMAGES)
                load = Load(int(workers), model, runtime, hosts, asked.clock, asked.updates)
                record["rows"].append(measure(folder, load))
            if asked.record:  # keeps the rows so far if a later one fails
                asked.record.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if asked.page:
        write_page(asked.page, record)


if __name__ == "__main__":
    main()
