"""Fetch Debian's kernel packages with apt, check their signatures and unpack them without installing.

apt gets folders of its own, so that neither the host's package lists nor its sources change, and a
Debian 12 kernel is the same on every Debian. Only files that the guest may load are unpacked, and they
are decompressed, because busybox's modprobe and old kernels load nothing compressed.
"""

import lzma
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError

MIRROR = "http://deb.debian.org/debian"
"""The default source of the packages."""
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_WANTED = re.compile(
    r"kernel/(net|crypto|lib|arch/x86/(crypto|lib)|fs/(9p|netfs|fscache|overlayfs|fuse)"
    r"|drivers/(virtio|net/(veth|dummy|bridge|tun|vxlan|virtio_net|net_failover)|char/(hw_random|virtio_console)))\b"
)
"""Modules that may be needed: the network, 9p, virtio, overlay, and their dependencies."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that Debian offers.

    Attributes:
        name: its name on the command line.
        suite: Debian's suite that has it.
        package: the package that depends on the newest image.
        title: its name in tables.
    """

    name: str
    suite: str
    package: str
    title: str


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("debian12", "bookworm", "linux-image-amd64", "Debian 12"),
        Kernel("backports", "bookworm-backports", "linux-image-amd64", "Debian 12 backports"),
    )
}


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A kernel that is ready to be booted.

    Attributes:
        kernel: the kernel's entry in ``KERNELS``.
        folder: the folder that holds it.
        version: its release, as ``uname -r`` prints it.
    """

    kernel: Kernel
    folder: Path
    version: str

    @property
    def image(self) -> Path:
        """The kernel itself."""
        return self.folder / "vmlinuz"

    @property
    def modules(self) -> Path:
        """The folder that the guest sees as /lib/modules."""
        return self.folder / "lib" / "modules"

    def load_order(self, *names: str) -> list[Path]:
        """Return the files of these modules and of their dependencies, dependencies first.

        Raises:
            HostError: the package does not have a module, nor is it built into the kernel.
        """
        folder = self.modules / self.version
        needs = {}
        for line in (folder / "modules.dep").read_text().splitlines():
            file, _, needed = line.partition(":")
            needs[file] = needed.split()
        files = {Path(file).stem.replace("-", "_"): file for file in needs}
        builtin = (folder / "modules.builtin").read_text()
        order: list[str] = []

        def add(file: str) -> None:
            for needed in needs[file]:
                if needed not in order:
                    add(needed)
            if file not in order:
                order.append(file)

        for name in names:
            if name in files:
                add(files[name])
            elif not re.search(rf"/{name.replace('_', '[-_]')}\.ko$", builtin, re.MULTILINE):
                raise HostError(
                    f"the kernel {self.version} has no module {name}, which a guest needs: delete "
                    f"{self.folder} to fetch it anew, or choose another kernel"
                )
        return [folder / file for file in order]


def unpacked(kernel: Kernel, cache: Path) -> Unpacked | None:
    """Return the kernel from the cache; None if it has not been fetched."""
    folder = cache / kernel.name
    versions = sorted(path.name for path in folder.glob("lib/modules/*"))
    return Unpacked(kernel, folder, versions[-1]) if versions else None


def fetch(kernel: Kernel, cache: Path, mirror: str | None = None) -> Unpacked:
    """Download the newest package of a kernel and unpack it into the cache.

    Raises:
        HostError: the package is not available, or a program that is needed is missing.
    """
    for program, provider in (
        ("apt-get", "apt (on Debian and its descendants)"),
        ("dpkg-deb", "dpkg"),
        ("busybox", "busybox-static"),
    ):
        if shutil.which(program) is None:
            raise HostError(f"{program}, which fetches kernels, is missing: install {provider}")
    if not _KEYRING.exists():
        raise HostError(
            f"{_KEYRING}, which checks Debian's packages, is missing: apt-get install "
            "debian-archive-keyring"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as made:
        folder = Path(made).resolve()
        package = _download(kernel, folder, mirror or MIRROR)
        ready = folder / "ready"
        version = _unpack(package, ready)
        _run(["busybox", "depmod", "-b", str(ready), version], "its modules cannot be listed")
        shutil.rmtree(cache / kernel.name, ignore_errors=True)
        ready.rename(cache / kernel.name)
    return Unpacked(kernel, cache / kernel.name, version)


def _download(kernel: Kernel, folder: Path, mirror: str) -> Path:
    """Download the image that the kernel's package depends on; return its file."""
    for name in ("lists/partial", "cache/archives/partial", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "state" / "status").touch()
    source = folder / "sources.list"
    source.write_text(f"deb [arch=amd64 signed-by={_KEYRING}] {mirror} {kernel.suite} main\n")
    settings = {
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Dir::Etc::SourceList": str(source),
        "Dir::Etc::SourceParts": "-",
        "Dir::State": str(folder / "state"),
        "Dir::State::Lists": str(folder / "lists"),
        "Dir::State::Status": str(folder / "state" / "status"),
        "Dir::Cache": str(folder / "cache"),
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    problem = f"{kernel.title}'s kernel cannot be fetched from {mirror}"
    _run(["apt-get", *options, "-q", "update"], problem, folder)
    shown = _run(["apt-cache", *options, "show", "--no-all-versions", kernel.package], problem)
    image = re.search(r"^Depends:.*?\b(linux-image-\d[^\s,]*)", shown, re.MULTILINE)
    if image is None:
        raise HostError(f"{problem}: {kernel.package} depends on no image")
    _run(["apt-get", *options, "-q", "download", image[1]], problem, folder)
    (file,) = folder.glob("*.deb")
    return file


def _unpack(package: Path, folder: Path) -> str:
    """Unpack the image and the modules that may be needed; return the kernel's version."""
    version = ""
    with (
        subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
        ) as reading,
        tarfile.open(fileobj=reading.stdout, mode="r|") as archive,
    ):
        for member in archive:
            name = member.name.removeprefix("./").removeprefix("usr/")
            if not member.isfile():
                continue
            if name.startswith("boot/vmlinuz-"):
                version = name.removeprefix("boot/vmlinuz-")
                target = folder / "vmlinuz"
            elif name.startswith("boot/config-"):
                target = folder / "config"
            elif name.startswith("lib/modules/") and (
                _WANTED.search(name) or name.rpartition("/")[2].startswith("modules.")
            ):
                target = folder / name.removesuffix(".xz")
            else:
                continue
            content = archive.extractfile(member)
            assert content is not None
            data = content.read()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(lzma.decompress(data) if name.endswith(".xz") else data)
    if not version:
        raise HostError(f"the package {package.name} has no kernel")
    return version


def _run(command: list[str], problem: str, folder: Path | None = None) -> str:
    """Run a command and return its output; raise HostError with ``problem`` if it fails."""
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise HostError(f"{problem}: {_complaint(result)}")
    return result.stdout


def _complaint(result: subprocess.CompletedProcess[str]) -> str:
    def lines() -> Iterator[str]:
        for line in (result.stderr + result.stdout).splitlines():
            if line.startswith(("E:", "Err:")):
                yield line
        yield from reversed(result.stderr.strip().splitlines())
        yield f"{result.args[0]} ended with {result.returncode}"

    return next(lines()).strip()
