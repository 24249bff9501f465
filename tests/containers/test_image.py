"""The digest of the code; an image that is missing or holds other code is refused."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path

import docker
import pytest

from testbed.code_digest import package_digest
from testbed.containers.image import DIGEST_LABEL, default_image, find_image
from testbed.errors import HostError

REPOSITORY = Path(__file__).parents[2]
PRINT = "from testbed.code_digest import package_digest as d; print(d())"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the packages."""
    for name in ("testbed", "traffic", "fastgrad"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=ignored)
    return tmp_path


def digest_of(folder: Path) -> str:
    """Return the digest that the code in this folder computes of itself."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", PRINT]
    return subprocess.check_output(command, cwd=folder, env=environment, text=True).strip()


def test_caches_notes_and_file_times_do_not_change_the_digest(checkout: Path) -> None:
    (checkout / "testbed" / "__pycache__").mkdir(exist_ok=True)
    (checkout / "testbed" / "__pycache__" / "errors.cpython-311.pyc").write_bytes(b"compiled")
    (checkout / "traffic" / "NOTES.md").write_text("about the code")
    os.utime(checkout / "testbed" / "errors.py", (0, 0))
    assert digest_of(checkout) == package_digest()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "traffic" / "headers.py").open("a").write("\n"),
        lambda folder: (folder / "fastgrad" / "layers.py").open("a").write("\n"),
        lambda folder: (
            (folder / "testbed" / "results" / "report" / "report.css").open("a").write("\n")
        ),
        lambda folder: (folder / "testbed" / "new.py").touch(),
        lambda folder: (folder / "testbed" / "py.typed").unlink(),
        lambda folder: (folder / "testbed" / "random_streams.py").rename(
            folder / "testbed" / "s.py"
        ),
    ],
    ids=["code", "code of gradients", "a style sheet", "one more", "one less", "another name"],
)
def test_other_code_has_another_digest(checkout: Path, change: object) -> None:
    assert callable(change)
    change(checkout)
    assert digest_of(checkout) != package_digest()


def test_a_missing_image_is_refused_with_the_remedy(docker_client: docker.DockerClient) -> None:
    with pytest.raises(
        HostError, match=r"there is no image nobody/made:this: build it from this code"
    ):
        find_image(docker_client, "nobody/made:this")


@pytest.mark.parametrize("label", [f"LABEL {DIGEST_LABEL}={'0' * 64}", "LABEL other=1"])
def test_an_image_of_other_code_is_refused(docker_client: docker.DockerClient, label: str) -> None:
    repository = f"testbed-test-{uuid.uuid4().hex[:12]}"
    with io.BytesIO() as archive:
        tarfile.open(fileobj=archive, mode="w").close()
        archive.seek(0)
        docker_client.api.import_image(src=archive, repository=repository, changes=[label])
    try:
        with pytest.raises(
            HostError, match=r"built from other code: build it .*make images IMAGE="
        ):
            find_image(docker_client, f"{repository}:latest")
    finally:
        docker_client.images.remove(f"{repository}:latest")


def test_the_image_of_this_code_is_found(
    docker_client: docker.DockerClient, testbed_image: str
) -> None:
    assert testbed_image == default_image()
    assert find_image(docker_client, testbed_image).labels[DIGEST_LABEL] == package_digest()
