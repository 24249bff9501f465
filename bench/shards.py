"""``make shards``: what four servers and ten clusters cost, against a plain star with one server.

200 workers (CNN, b = 10, ASGD, no waiting) push and pull as fast as the host lets them, in namespaces
under the wall clock. Each round runs the star, the shards behind clusters whose links have no rate, and
the shards behind clusters whose links have 10 Gbit/s that their devices share. An update of the shards
is one at each of them: the version that all have reached counts. Prints each run, the ratios of
updates/s in each round, and their median; exits with status 1 if a ledger does not agree.
"""

import argparse
import resource
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.__main__ import SPEC, WARM_UP, WORKERS, write_idx
from bench.command import CarriedOut, execute

SERVERS = 4
CLUSTERS = 10
KINDS = {"star": None, "shards, no rates": "", "shards, 10 Gbit/s": "10gbit"}
"""The kinds of runs, each with the rate of its clusters' links."""


def spec(dataset: Path, updates: int, rate: str | None) -> str:
    """Return an experiment file: a star, or shards behind clusters whose links have a rate."""
    text = SPEC.format(dataset=dataset, updates=updates, algorithm="asgd", workers=WORKERS)
    if rate is None:
        return text
    links = f", uplink: {rate}, downlink: {rate}" if rate else ""
    clusters = [
        f"{{name: cluster-{i}, number: {WORKERS // CLUSTERS}{links}}}" for i in range(CLUSTERS)
    ]
    return (
        text.replace("devices: {", f"devices: {{servers: {SERVERS}, ")
        + f"network: {{clusters: [{', '.join(clusters)}]}}\n"
    )


def rate_of(done: CarriedOut) -> float:
    """Return the updates per second of all servers together, after every worker's first turns."""
    (summary,) = done.summaries
    rows = pq.read_table(done.directory / summary["algorithm"] / "updates.parquet")
    servers = rows["server"].to_numpy() if "server" in rows.column_names else np.zeros(len(rows))
    times = rows["host_time"].to_numpy()
    per_server = [np.sort(times[servers == one]) for one in np.unique(servers)]
    updates = min(map(len, per_server))
    reached = np.max([one[:updates] for one in per_server], axis=0)
    skipped = min(WARM_UP * WORKERS, updates // 2)
    return float((updates - skipped) / (reached[-1] - reached[skipped - 1]))


def measured(folder: Path, kind: str, updates: int) -> tuple[float, bool]:
    """Carry out one run and print it; return its updates per second, and whether ledgers agree."""
    path = folder / "shards.yaml"
    path.write_text(spec(folder / "idx", updates, KINDS[kind]))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = execute("run", path, folder, quiet=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.status:
        raise SystemExit(f"shards: {kind} ended with status {done.status}")
    (summary,) = done.summaries
    traffic, rate = summary["traffic"], rate_of(done)
    agreed = traffic["reconciled"] is True
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{kind:18} {rate:6.0f} updates/s, set-up {summary['setup_seconds']:5.1f} s, processors "
        f"{processor:5.1f} s, ledgers {'equal' if agreed else traffic['differences']}",
        flush=True,
    )
    return rate, agreed


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.shards", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=3_000)
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {kind: [] for kind in list(KINDS)[1:]}
    status = 0
    with tempfile.TemporaryDirectory(prefix="testbed-shards-") as name:
        folder = Path(name)
        (folder / "idx").mkdir()
        write_idx(folder / "idx")
        for round_ in range(options.rounds):
            order = list(KINDS) if round_ % 2 == 0 else list(KINDS)[::-1]
            found = {kind: measured(folder, kind, options.updates) for kind in order}
            status |= not all(agreed for _, agreed in found.values())
            for kind, rates in ratios.items():
                rates.append(found[kind][0] / found["star"][0])
    for kind, rates in ratios.items():
        each = ", ".join(f"{ratio:.2f}" for ratio in rates)
        print(f"{kind} over star: {each} (median {statistics.median(rates):.2f})")
    return status


if __name__ == "__main__":
    sys.exit(main())
