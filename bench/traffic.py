"""``make traffic``: measure the cost of the capture, and compare all counts of the traffic.

Runs of 200 workers at full load (ASGD, CNN, no waiting, no shaping) take turns with the capture on and
off, because shared machines drift: each pair gives one ratio of updates/s. Each run with a capture
prints how many packets were dropped and whether the three ledgers agree. Reading the last capture is
timed, and compared with tshark where that is installed. The sizes of the encodings follow
(``bench.encodings``). Writes ``traffic.json``; nothing is asserted.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq

from bench.__main__ import WARM_UP, WORKERS, write_idx
from bench.encodings import main as encodings
from testbed.network.links import Link
from testbed.runs.ledgers.ledgers import Ledgers
from testbed.runs.versions import commit, host, versions
from traffic.accounting import account
from traffic.capture_files import CaptureFile

PAIRS = 4
SERVER = Link("server", 0).address
COUNTED = 15
"""Updates per worker that are counted."""

SPEC = """
name: traffic
dataset: {dataset}
model: cnn
training: {{updates: {updates}}}
algorithms: [asgd]
devices: {{workers: {workers}}}
evaluation: {{every: 1000000000, images: 10}}
traffic: {{capture: {capture}}}
"""


def emulate(folder: Path, capture: bool) -> dict[str, Any]:
    """Run once; return the rate, the summary of the traffic and the capture's processor time."""
    spec = folder / "traffic.yaml"
    updates = (WARM_UP + COUNTED) * WORKERS
    spec.write_text(
        SPEC.format(
            dataset=folder / "idx", updates=updates, workers=WORKERS, capture=str(capture).lower()
        )
    )
    command = [sys.executable, "-m", "testbed", "run", str(spec), "--out", str(folder), "--json"]
    seconds = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            seconds = max(seconds, _processor_time(process.pid))
            time.sleep(0.5)
        assert process.stdout is not None
        execution = json.loads(process.stdout.read() or b"{}")
    if process.returncode:
        raise SystemExit(f"bench: {' '.join(command)} ended with status {process.returncode}")
    (summary,) = execution["runs"]
    directory = Path(execution["directory"]) / summary["algorithm"]
    times = pq.read_table(directory / "updates.parquet")["time"].to_numpy()
    skipped = WARM_UP * WORKERS
    return {
        "directory": str(directory),
        "updates_per_second": (len(times) - skipped) / (times[-1] - times[skipped - 1]),
        "training_seconds": float(times[-1]),
        "capture_processor_seconds": seconds,
        **summary["traffic"],
    }


def _processor_time(pid: int) -> float:
    """Return the CPU seconds of the capture's process so far; 0 without one."""
    try:
        for process in psutil.Process(pid).children(recursive=True):
            if "capture" in process.cmdline():
                used = process.cpu_times()
                return float(used.user + used.system)
    except psutil.NoSuchProcess:
        pass
    return 0.0


def as_tshark_counts(files: list[Path], server: str) -> dict[str, int]:
    """Count packets and bytes, and those to ``server`` as at an MTU of 1,500, with tshark."""
    fields = ("frame.len", "tcp.len", "tcp.stream", "tcp.hdr_len", "tcp.options.mss_val", "ip.dst")
    command = ["tshark", "-n", "-T", "fields", *(part for f in fields for part in ("-e", f)), "-r"]
    counts = dict.fromkeys(("packets", "bytes", "frames", "wire_bytes"), 0)
    segment: dict[str, int] = {}
    for file in files:
        with subprocess.Popen(
            [*command, str(file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                length, payload, stream, header, mss, to = line.rstrip("\n").split("\t")
                if mss:
                    segment[stream] = min(segment.get(stream, 65_535), int(mss))
                counts["packets"] += 1
                counts["bytes"] += int(length)
                if to == server:
                    each = segment[stream] - (int(header) - 20)
                    frames = max(1, -(-int(payload) // each))
                    counts["frames"] += frames
                    counts["wire_bytes"] += int(length) + (frames - 1) * (
                        int(length) - int(payload)
                    )
        if process.returncode:
            raise SystemExit(f"bench: tshark ended with status {process.returncode}")
    return counts


def as_traffic_counts(files: list[Path], server: str) -> dict[str, int]:
    """Count the same with the package ``traffic``."""
    found = account(files)
    rows = found.seconds
    inward = np.isin(rows["pair"], [i for i, (_, to) in enumerate(found.pairs) if to == server])
    return {
        "packets": found.totals["records"],
        "bytes": sum(int(r.length.sum()) for file in files for r in CaptureFile(file).records()),
        "frames": int(rows["frames"][inward].sum()),
        "wire_bytes": int(rows["wire_bytes"][inward].sum()),
    }


def main() -> None:
    """Measure, print and write ``traffic.json``."""
    argparse.ArgumentParser(prog="python -m bench.traffic", description=__doc__).parse_args()
    result: dict[str, Any] = {"host": host(), "commit": commit(), "versions": versions()}
    ratios: list[float] = []
    with tempfile.TemporaryDirectory(prefix="testbed-traffic-") as name:
        folder = Path(name)
        (folder / "idx").mkdir()
        write_idx(folder / "idx")
        runs: list[dict[str, Any]] = []
        for pair in range(PAIRS):
            both = {capture: emulate(folder, capture) for capture in (pair % 2 == 0, pair % 2 == 1)}
            ratios.append(both[True]["updates_per_second"] / both[False]["updates_per_second"])
            run = both[True]
            runs.append(run)
            print(
                f"{WORKERS} workers, capture off {both[False]['updates_per_second']:.0f} updates/s, "
                f"on {run['updates_per_second']:.0f}: ratio {ratios[-1]:.3f}; "
                f"{run['capture']['records']:,} packets, {run['capture']['dropped']} dropped, "
                f"reconciled: {str(run['reconciled']).lower()}; the capture took "
                f"{run['capture_processor_seconds']:.2f} s of a processor "
                f"in {run['training_seconds']:.0f} s",
                flush=True,
            )
        print(f"median ratio {statistics.median(ratios):.3f}")
        files = [Path(runs[-1]["directory"]) / "traffic" / f for f in runs[-1]["capture"]["files"]]
        began = time.process_time()
        found = account(files)
        spent = time.process_time() - began
        records = found.totals["records"]
        print(f"read and accounted for in {spent / records * 1e6:.2f} µs per packet")
        ours = as_traffic_counts(files, SERVER)
        theirs = as_tshark_counts(files, SERVER) if shutil.which("tshark") else None
        if theirs is None:
            print("tshark is not installed (Debian: apt-get install tshark): not compared with it")
        else:
            print(f"tshark {'agrees' if theirs == ours else f'DIFFERS, {theirs}'}: {ours}")
        counted = Ledgers.load(Path(runs[-1]["directory"]) / "traffic").counter
        print(f"the kernel's class counter: {counted}")
        result |= {"ratios": ratios, "runs": runs, "microseconds_per_packet": spent / records * 1e6}
        result |= {"tshark": theirs, "traffic": ours}
    print()
    encodings()
    Path("traffic.json").write_text(json.dumps(result, indent=2) + "\n")
    print("\nwritten to traffic.json")


if __name__ == "__main__":
    main()
