"""Files around a boot in QEMU: the initramfs, the order of the modules, the results."""

import subprocess
from pathlib import Path

import pytest

from kernels import machine
from kernels.debian import KERNELS, Unpacked, unpacked
from kernels.initramfs import NEEDED, pack
from kernels.results import read, table
from testbed.errors import HostError, RunError


@pytest.fixture
def kernel(tmp_path: Path) -> Unpacked:
    """An imitation of an unpacked kernel with modules that need others; overlay is built in."""
    folder = tmp_path / "debian12" / "lib" / "modules" / "6.1.0-1-amd64"
    folder.mkdir(parents=True)
    needs = {"9pnet": [], "9pnet_virtio": ["9pnet"], "9p": ["netfs", "9pnet"], "netfs": []}
    needs["virtio_pci"] = []
    for name in needs:
        (folder / f"{name}.ko").write_bytes(name.encode() * 3)
    lines = (f"{name}.ko: {' '.join(f'{n}.ko' for n in of)}\n" for name, of in needs.items())
    (folder / "modules.dep").write_text("".join(lines))
    (folder / "modules.builtin").write_text("kernel/fs/overlayfs/overlay.ko\n")
    found = unpacked(KERNELS["debian12"], tmp_path)
    assert found is not None and found.version == "6.1.0-1-amd64"
    return found


def test_modules_come_after_the_modules_that_they_need(kernel: Unpacked) -> None:
    names = [path.stem for path in kernel.load_order(*NEEDED)]
    assert sorted(names) == ["9p", "9pnet", "9pnet_virtio", "netfs", "virtio_pci"]
    assert names.index("9pnet") < names.index("9pnet_virtio")
    assert names.index("netfs") < names.index("9p")


def test_a_kernel_without_9p_is_refused(kernel: Unpacked) -> None:
    with pytest.raises(HostError, match=r"6\.1\.0-1-amd64 has no module fuse"):
        kernel.load_order("fuse")


def test_cpio_unpacks_the_initramfs(kernel: Unpacked, tmp_path: Path) -> None:
    try:
        busybox = machine.check()
    except HostError as error:
        pytest.skip(str(error))
    target = tmp_path / "read"
    target.mkdir()
    subprocess.run(
        [busybox, "cpio", "-i"], cwd=target, input=pack(kernel, busybox), check=True, timeout=60
    )
    assert (target / "bin" / "busybox").read_bytes() == busybox.read_bytes()
    assert (target / "modules" / "9p.ko").read_bytes() == b"9p9p9p"
    order = (target / "modules" / "order").read_text().split()
    assert order == [path.name for path in kernel.load_order(*NEEDED)]
    for name in ("init", "bin/busybox"):
        assert (target / name).stat().st_mode & 0o111
    assert (target / "new").is_dir()


def test_results_are_read_from_the_junit_file(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.kernels.test_a" name="one" time="1.5"><properties>
        <property name="measured" value='["rate", "4 Mbit/s", "3.9 Mbit/s"]'/></properties></testcase>
        <testcase classname="test_a" name="two" time="2"><failure message="no"/></testcase>
        <testcase classname="test_a" name="three" time="0"><skipped message="why"/></testcase>
        </testsuite></testsuites>"""
    )
    one, two, three = read(file)
    assert (one.name, one.outcome, one.seconds) == ("test_a: one", "passed", 1.5)
    assert (two.outcome, two.why) == ("failed", "no")
    assert (three.outcome, three.why) == ("skipped", "why")
    assert table([one, two, three]).splitlines()[1].split() == [
        "rate",
        "4",
        "Mbit/s",
        "3.9",
        "Mbit/s",
    ]
    with pytest.raises(RunError, match="left no results"):
        read(tmp_path / "none.xml")


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "QEMU", "qemu-of-no-such-machine")
    with pytest.raises(HostError, match="apt-get install qemu-system-x86"):
        machine.check()
