"""The wheels that an image is made of, fetched beforehand so that its build needs no network.

The wheels of the dependencies and the testbed's own are in two folders below ``build/images``, which
git ignores: each folder is made anew only when its sources have changed. pip is that of this process's
Python, with the user's own settings (indexes, certificates, proxies).
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from images.archive import EPOCH
from testbed.code_digest import code_files, package_digest
from testbed.errors import HostError

DEPENDENCIES = Path("dependencies")
"""Folder of the dependencies' wheels, below the folder of all wheels."""
PACKAGE = Path("package")
"""Folder of the testbed's own wheel."""
_KEY = "key"


@dataclass(frozen=True, slots=True)
class Target:
    """The platform that the wheels must run on.

    Attributes:
        python: major and minor version, e.g. ``(3, 11)``.
        machine: the processor, as ``uname -m`` prints it.
        glibc: major and minor version of the C library.
    """

    python: tuple[int, int]
    machine: str
    glibc: tuple[int, int]

    @property
    def options(self) -> list[str]:
        """The options with which pip downloads for this target and no other."""
        major, minor = self.python
        newest, older = self.glibc[1], ("2014", "2010", "1")
        platforms = [f"manylinux_2_{n}_{self.machine}" for n in range(newest, 4, -1)]
        platforms += [f"manylinux{name}_{self.machine}" for name in older]
        options = [
            "--only-binary=:all:",
            "--implementation=cp",
            f"--python-version={major}.{minor}",
        ]
        options += [f"--abi={abi}" for abi in (f"cp{major}{minor}", "abi3", "none")]
        return options + [f"--platform={platform}" for platform in platforms]


def prepare(
    project: Path, folder: Path, target: Target, pip_arguments: Sequence[str] | None = None
) -> list[Path]:
    """Make sure that a folder has all wheels; return them in the order of their paths.

    Args:
        project: the checkout.
        folder: the folder of all wheels.
        pip_arguments: more arguments for pip; None: those of the environment's ``PIP_ARGS``.

    Raises:
        HostError: pip could not get or make a wheel.
    """
    if pip_arguments is None:
        pip_arguments = shlex.split(os.environ.get("PIP_ARGS", ""))
    description = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = description["project"]["dependencies"]
    constraints = project / "constraints.txt"
    wanted = [*requirements, constraints.read_text(encoding="utf-8"), repr(target), *pip_arguments]

    def download(into: Path) -> None:
        arguments = ["download", *target.options, "-c", str(constraints), *pip_arguments]
        _pip([*arguments, "--dest", str(into), *requirements])

    def build(into: Path) -> None:
        build_package(project, into, pip_arguments)

    own = [package_digest(), (project / "pyproject.toml").read_text(encoding="utf-8")]
    make_once(folder / DEPENDENCIES, "\n".join(wanted), download)
    make_once(folder / PACKAGE, "\n".join(own), build)
    return sorted(
        path for name in (DEPENDENCIES, PACKAGE) for path in (folder / name).glob("*.whl")
    )


def make_once(folder: Path, wanted: str, make: Callable[[Path], None]) -> None:
    """Make a folder anew unless ``wanted`` is unchanged; a failed attempt leaves the old folder.

    Args:
        wanted: everything that the folder's content depends on.
        make: fills the folder that it is given.
    """
    key = hashlib.sha256(wanted.encode()).hexdigest()
    if (folder / _KEY).is_file() and (folder / _KEY).read_text() == key:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as made:
        into = Path(made) / folder.name
        into.mkdir()
        make(into)
        (into / _KEY).write_text(key)
        shutil.rmtree(folder, ignore_errors=True)
        into.rename(folder)


def build_package(project: Path, into: Path, pip_arguments: Sequence[str]) -> None:
    """Make the testbed's wheel from a copy: the checkout's build folder may hold files since removed.

    Raises:
        HostError: pip could not make the wheel.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-wheel-") as made:
        copy = Path(made)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(project / name, copy / name)
        for package in ("testbed", "traffic", "fastgrad"):
            for path in code_files(project / package):
                to = copy / path.relative_to(project)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)
        options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(into)]
        _pip(["wheel", *pip_arguments, *options, str(copy)])


def _pip(arguments: Sequence[str]) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    result = subprocess.run(
        [*command, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if result.returncode:
        said = result.stdout.decode(errors="replace").strip().splitlines()
        errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR:")]
        raise HostError(
            f"pip could not {arguments[0]} the packages of the image "
            f"({errors[0] if errors else said[-1] if said else 'without a reason'}): PIP_ARGS may name "
            "another index"
        )
