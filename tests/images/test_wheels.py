"""The wheels: only for the image's Python, and made again only if their sources change."""

import zipfile
from pathlib import Path

import pytest

from images.wheels import Target, build_package, make_once, prepare
from testbed.code_digest import code_files
from testbed.errors import HostError

REPOSITORY = Path(__file__).parents[2]
TARGET = Target((3, 11), "aarch64", (2, 36))


def test_pip_gets_the_target() -> None:
    options = TARGET.options
    assert "--python-version=3.11" in options
    assert "--abi=cp311" in options
    platforms = [option for option in options if option.startswith("--platform=")]
    # The newest platform that the target runs comes first.
    assert platforms[0] == "--platform=manylinux_2_36_aarch64"
    assert "--platform=manylinux_2_17_aarch64" in platforms
    assert "--platform=manylinux_2_37_aarch64" not in platforms
    assert not [option for option in platforms if "x86_64" in option]


def test_the_wheel_holds_the_code_and_nothing_else(tmp_path: Path) -> None:
    build_package(REPOSITORY, tmp_path, ())
    (wheel,) = tmp_path.glob("testbed-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = [REPOSITORY / name for name in ("testbed", "traffic", "fastgrad")]
    code = [path for package in packages for path in code_files(package)]
    assert held == {path.relative_to(REPOSITORY).as_posix() for path in code}


def test_an_unavailable_package_is_named(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\ndependencies = ["torch==0.0.0.1"]\n')
    (project / "constraints.txt").touch()
    with pytest.raises(HostError, match=r"pip could not download .*torch==0\.0\.0\.1.*PIP_ARGS"):
        prepare(project, tmp_path / "wheels", TARGET, ["--no-index"])
    assert not list(
        (tmp_path / "wheels").iterdir()
    )  # a partial download must not pass for the whole


def test_wheels_are_made_again_only_if_their_sources_change(tmp_path: Path) -> None:
    folder, made = tmp_path / "wheels", []

    def make(into: Path) -> None:
        made.append(into)
        (into / f"{len(made)}.whl").touch()

    def fail(into: Path) -> None:
        (into / "half.whl").touch()
        raise HostError("no")

    def held() -> list[str]:
        return sorted(path.name for path in folder.glob("*.whl"))

    make_once(folder, "one", make)
    make_once(folder, "one", make)
    assert held() == ["1.whl"]
    with pytest.raises(HostError):
        make_once(folder, "two", fail)
    assert held() == ["1.whl"]
    make_once(folder, "two", make)
    assert held() == ["2.whl"]
    assert [path.name for path in tmp_path.iterdir()] == ["wheels"]
