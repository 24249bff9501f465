"""``python -m images.release``: build all that a release consists of, and try the wheel by itself.

Everything is made of a commit, not of what lies beside it: the wheel is built from the sdist, so that a
file which the sdist lacks is missed here and not by the first who installs it.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path

import yaml

from images.build import build, choose_base
from images.engine import connect
from testbed.containers.image import default_image
from testbed.errors import HostError, TestbedError

_PROJECT = Path(__file__).resolve().parents[1]
DIST = _PROJECT / "dist"
"""The folder of what is built, which git ignores."""
_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
_DIGEST = "from testbed.code_digest import package_digest; print(package_digest())"
_BEGAN = time.monotonic()


def main() -> None:
    """Build the release of the commit that is checked out.

    Raises:
        TestbedError: there is something that is not committed, versions differ, or a step fails.
    """
    if _output("git", "status", "--porcelain", "--untracked-files=no", cwd=_PROJECT):
        raise TestbedError("a release is made of a commit: commit what is changed, or stash it")
    with tempfile.TemporaryDirectory(prefix="testbed-release-") as made:
        folder = Path(made)
        sources = folder / "sources"
        with (folder / "sources.tar").open("wb") as archive:
            subprocess.run(["git", "archive", "HEAD"], cwd=_PROJECT, stdout=archive, check=True)
        with tarfile.open(folder / "sources.tar") as archive_of_sources:
            archive_of_sources.extractall(sources, filter="data")
        version = version_of(sources)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        _say(f"sdist and wheel of {version}")
        wheel = _packages(sources)
        _say("documentation")
        _documentation(sources, folder / "site", version)
        image = _image()
        _say("the wheel in an environment of its own, which downloads its dependencies")
        _try(wheel, sources, folder / "environment", folder)
    for path in sorted(DIST.iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{digest}  {path.relative_to(_PROJECT)}  {path.stat().st_size / 1e6:.2f} MB")
    print(f"image: {image}")


def version_of(sources: Path) -> str:
    """Return the version of a checkout.

    Raises:
        TestbedError: pyproject.toml, the package and CITATION.cff do not have the same.
    """
    project = tomllib.loads((sources / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((sources / "CITATION.cff").read_text(encoding="utf-8"))
    package: dict[str, str] = {}
    exec((sources / "testbed" / "version.py").read_text(encoding="utf-8"), package)
    found = {
        "pyproject.toml": project["version"],
        "testbed/version.py": package["VERSION"],
        "CITATION.cff": citation["version"],
    }
    if len(set(found.values())) > 1:
        said = ", ".join(f"{version} in {file}" for file, version in found.items())
        raise TestbedError(f"there is more than one version: {said}")
    return str(project["version"])


def _packages(sources: Path) -> Path:
    """Build the sdist, and of it the wheel; return the wheel."""
    _do(sys.executable, "-c", _SDIST, DIST, cwd=sources)
    (sdist,) = DIST.glob("testbed-*.tar.gz")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    _do(sys.executable, "-m", "pip", "wheel", *quiet, "-w", DIST, sdist, cwd=DIST)
    (wheel,) = DIST.glob("testbed-*.whl")
    return wheel


def _documentation(sources: Path, site: Path, version: str) -> None:
    _do(sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site, cwd=sources)
    name = f"testbed-{version}-docs"
    with tarfile.open(DIST / f"{name}.tar.gz", "w:gz") as archive:
        archive.add(site, name)


def _image() -> str:
    """Build the image; return its name, or why there is none."""
    try:
        client = connect()
    except HostError as error:
        return f"left out, as there is no Docker engine ({error})"
    _say(f"image {default_image()}")
    build(client, _PROJECT, choose_base(client, None, _say), default_image(), _say)
    return default_image()


def _try(wheel: Path, sources: Path, environment: Path, folder: Path) -> None:
    """Install the wheel with its dependencies and nothing else, and use it as a person would."""
    _do(sys.executable, "-m", "venv", environment, cwd=folder)
    programs = environment / "bin"
    arguments = shlex.split(os.environ.get("PIP_ARGS", ""))
    constraints = ("-c", sources / "constraints.txt")
    quiet = ("--quiet", "--disable-pip-version-check")
    _do(programs / "pip", "install", *quiet, *arguments, *constraints, wheel, cwd=folder)
    testbed = programs / "testbed"
    _say(_output(testbed, "--version", cwd=folder))
    _do(testbed, "new", "first", cwd=folder)
    _do(testbed, "plan", "experiment.yaml", "--drawing", "network.svg", cwd=folder / "first")
    _say(_output(testbed, "simulate", "experiment.yaml", cwd=folder / "first").splitlines()[-1])
    ours = _output(sys.executable, "-c", _DIGEST, cwd=sources)
    if _output(programs / "python", "-c", _DIGEST, cwd=folder) != ours:
        raise TestbedError("the wheel's files of code are not those of the commit")


def _do(*words: str | Path, cwd: Path) -> None:
    _output(*words, cwd=cwd)


def _output(*words: str | Path, cwd: Path) -> str:
    """Run a program; return what it prints.

    Raises:
        TestbedError: it fails; the message has its last lines.
    """
    # Modules are found in the folder or the environment, and nowhere else.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=inherited | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise TestbedError(f"{' '.join(map(str, words))} failed:\n{last}")
    return done.stdout.strip()


def _say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except TestbedError as error:
        print(f"release: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
