"""Checks of the images of programs, with an engine that is pretended."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from docker.errors import ImageNotFound

from testbed.containers import engine
from testbed.doctor import planned_containers
from testbed.errors import HostError
from testbed.experiment.load import load_any
from testbed.experiment.programs_spec import ProgramsSpec
from testbed.planning.program_plan import ProgramPlan, plan_programs


class Engine:
    """An engine for amd64 with some images."""

    def __init__(self, images: dict[str, dict[str, Any]]) -> None:
        self._images = images
        self.images = self

    def get(self, name: str) -> SimpleNamespace:
        if name not in self._images:
            raise ImageNotFound(name)
        return SimpleNamespace(attrs=self._images[name])

    def version(self) -> dict[str, str]:
        return {"Arch": "amd64"}

    def info(self) -> dict[str, Any]:
        return {"NCPU": 2, "MemTotal": 1 << 34, "CpuCfsQuota": True}

    def close(self) -> None:
        """Do nothing."""


def image(architecture: str = "amd64", **config: Any) -> dict[str, Any]:
    return {"Architecture": architecture, "Config": config}


@pytest.fixture
def plan(tmp_path: Path) -> ProgramPlan:
    path = tmp_path / "spec.yaml"
    content = {
        "name": "x",
        "programs": {
            "a": {"on": "workers", "image": "a:1"},
            "b": {"on": "workers", "run": "x"},
        },
        "devices": {"workers": 2, "runtime": "docker", "image": "base:1"},
    }
    path.write_text(yaml.safe_dump(content))
    spec = load_any(path)
    assert isinstance(spec, ProgramsSpec)
    return plan_programs(spec)[0]


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        ({"base:1": image(), "a:1": image(Cmd=["x"])}, ""),
        ({"base:1": image(), "a:1": image(Entrypoint=["x"])}, ""),
        ({"a:1": image(Cmd=["x"])}, "there is no image base:1: build it from this code"),
        ({"base:1": image()}, "programs.a.image: the Docker engine has no image a:1: build it"),
        ({"base:1": image(), "a:1": image()}, "a:1 has neither entry point nor command"),
        (
            {"base:1": image(), "a:1": image("arm64", Cmd=["x"])},
            "programs.a.image: the image a:1 is for arm64 processors, and this host's are amd64",
        ),
    ],
)
def test_images_are_there_start_by_themselves_and_fit(
    plan: ProgramPlan,
    monkeypatch: pytest.MonkeyPatch,
    images: dict[str, dict[str, Any]],
    sentence: str,
) -> None:
    monkeypatch.setattr(engine, "connect", lambda: Engine(images))
    monkeypatch.setattr(engine, "check", lambda _client, count: count == plan.containers)
    if not sentence:
        planned_containers.check([plan])
        return
    with pytest.raises(HostError) as error:
        planned_containers.check([plan])
    assert sentence in str(error.value)
    assert str(error.value).count("\n") == 0
