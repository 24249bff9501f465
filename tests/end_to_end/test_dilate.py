"""``testbed dilate`` on real namespaces, and what runs under the wall clock say of their host."""

import json

import pytest

from testbed.fidelity.section import Fidelity
from testbed.json_dataclasses import of_plain
from tests.end_to_end.conftest import SMALL, CommandLine, assert_one_sentence

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

WORKERS, UPDATES, WAIT = 3, 30, 0.3
EXPERIMENT = SMALL | {
    "clock": "wall",
    "devices": {"workers": WORKERS},
    "training": {"updates": UPDATES},
    "network": {"uplink": "40mbit", "probe": False},
    "waiting": {"distribution": "constant", "mean": f"{WAIT}s"},
}


def test_twice_the_time_is_half_the_speed_and_both_runs_tell_of_their_host(
    command: CommandLine,
) -> None:
    path = command.spec(EXPERIMENT)
    options = ["--factor", "2", "--tolerance", "0.2", "--json", "--out", str(command.out)]
    done = command.do("dilate", str(path), *options)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["agree"] is True
    assert found["points"][-1]["update"] == UPDATES
    assert found["greatest_time_difference"] < 0.2
    times = [found["points"][-1][name] for name in ("time", "dilated_time")]
    assert min(times) > WAIT * UPDATES / WORKERS * 0.9
    for name in ("original", "dilated"):
        text = (command.out / found[name] / "summary.json").read_text()
        section = of_plain(Fidelity, json.loads(text)["fidelity"])
        assert section.timers is not None
        assert UPDATES <= section.timers.count <= UPDATES + WORKERS
        assert section.timers.asked == pytest.approx(WAIT * (1 + (name == "dilated")), rel=0.01)
        assert 0 <= section.timers.median <= section.timers.worst
        assert section.host is not None
        assert section.host.seconds >= 2
        assert 0 <= section.host.least <= section.host.first_percentile <= section.host.median <= 1
        assert section.links is not None
        assert section.links.unasked_drops == 0
        assert section.round_trips is not None
        assert section.round_trips.connections == WORKERS
        assert section.round_trips.asked == 0
        assert section.kept_up is not None
    again = ["--original", found["original"], "--dilated", found["dilated"], "--tolerance", "0"]
    differing = command.do("dilate", str(path), "--factor", "2", *again, "--out", str(command.out))
    assert differing.returncode == 5
    assert "the curves DIFFER" in differing.stdout
    assert "did not keep up" in differing.stdout or "kept up" in differing.stdout
    assert "not dilated: the kernel's TCP" in differing.stdout
    for tolerance in ("nan", "-0.1"):
        refused = command.do("dilate", str(path), *again[:-1], tolerance)
        assert f"--tolerance {tolerance}: give a share" in assert_one_sentence(refused, 2)


def test_after_an_interruption_the_longer_run_is_not_begun(command: CommandLine) -> None:
    path = command.spec(EXPERIMENT | {"training": {"updates": 10_000}})
    started = command.start("dilate", path, "--out", str(command.out))
    started.until_training()
    started.interrupt()
    assert started.wait() == 130
    (directory,) = (command.out / "small").iterdir()
    assert f"`testbed resume {directory}` goes on where it stopped, and --original" in started.said
    assert [one.name for one in (command.out / "small-x4").iterdir()] == ["dilated.yaml"]


def test_after_a_failure_the_longer_run_is_not_begun(command: CommandLine) -> None:
    faults = [{"who": "each", "when": {"time": "100ms"}, "how": "kill"}]
    path = command.spec(EXPERIMENT | {"clock": "virtual", "engine": "simulation", "faults": faults})
    done = command.do("dilate", path, "--out", str(command.out))
    assert done.returncode == 1
    assert "asgd failed: " in done.stderr.splitlines()[-1]
    assert [one.name for one in (command.out / "small-x4").iterdir()] == ["dilated.yaml"]
