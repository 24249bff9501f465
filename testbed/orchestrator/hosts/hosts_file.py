"""The file that ``--hosts`` names: this host's address, the others', and who is where."""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from testbed.errors import SpecError
from testbed.network.underlay import AGENT_PORT
from testbed.network.underlay import PORT as TUNNEL_PORT


def check_private(address: str, where: str, remedy: str) -> None:
    """Check that nobody but these hosts can read what passes between them.

    Args:
        where: what has named the address, and ``remedy``: what to do; for the message.

    Raises:
        SpecError: the address is not private.
    """
    if not ipaddress.ip_address(address).is_private:
        raise SpecError(
            f"{where}: {address} is no private address, and what passes between hosts is not "
            f"encrypted: {remedy}"
        )


@dataclass(frozen=True, slots=True)
class OtherHost:
    """A host whose agent was started there.

    Attributes:
        address, port: of its agent.
        underlay: its address for the tunnels of links.
        places: where files that runs read are on it, by their paths on this host; empty if they are in
            the same places.
    """

    name: str
    address: str
    port: int
    underlay: str
    places: Mapping[str, str] = field(default_factory=dict)

    def placed(self, value: Any) -> Any:
        """Return a JSON value with the paths that files have on that host."""
        return with_places(value, self.places)

    @property
    def described(self) -> str:
        """Its name and where its agent is, for messages."""
        return f"host {self.name} ({self.address}:{self.port})"


class _Host(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    agent: Annotated[str, Field(description="The address of its agent, with a port or without.")]
    underlay: Annotated[
        str | None, Field(description="Its address for links; else the agent's.")
    ] = None


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    underlay: str
    hosts: dict[str, _Host]
    place: dict[str, str] = {}
    secret_file: str | None = None
    trusted: bool = False
    port: Annotated[int, Field(ge=1, le=65_535)] = TUNNEL_PORT


@dataclass(frozen=True, slots=True)
class HostsFile:
    """What the file says.

    Attributes:
        underlay: this host's own address for the tunnels.
        others: in the order of the file.
        place: the host of devices, by patterns of their names: ``worker-0``, ``worker-10..19``.
        secret_file: None for ``TESTBED_SECRET``.
        port: the UDP port of the tunnels, on all hosts.
        made_secret: one that was made for the run; empty if a file or the environment has it.
        accept_underlay: True to take links whose delay is longer than asked; see ``underlay_delay``.
    """

    underlay: str
    others: Sequence[OtherHost]
    place: Mapping[str, str] = field(default_factory=dict)
    secret_file: Path | None = None
    port: int = TUNNEL_PORT
    made_secret: bytes = b""
    accept_underlay: bool = False

    @classmethod
    def load(cls, path: Path) -> "HostsFile":
        """Read the file.

        Raises:
            SpecError: it cannot be read, or says something that cannot be.
        """
        # Imported only here: with it comes torch, and `testbed exec` reads no file of hosts.
        from testbed.experiment.load import read_other

        content = read_other(path, _Content)
        others = [_other(path, name, host) for name, host in content.hosts.items()]
        own = _address(path, "underlay", content.underlay)
        for pattern, host in content.place.items():
            if host not in content.hosts:
                raise SpecError(
                    f"{path}: place: {pattern} is on {host}, which is none of the hosts"
                )
        if not content.trusted:
            for one in (
                own,
                *(address for host in others for address in (host.address, host.underlay)),
            ):
                check_private(
                    one, f"{path}", "say `trusted: true` if nobody else reads that network"
                )
        by_address = {own: "this host"}
        for other in others:
            before = by_address.setdefault(other.underlay, f"host {other.name}")
            if before != f"host {other.name}":
                raise SpecError(
                    f"{path}: hosts.{other.name}: {other.underlay} is the address of {before} for "
                    "links, too: each host has one of its own"
                )
        secret = path.parent / content.secret_file if content.secret_file else None
        return cls(own, others, content.place, secret, content.port)

    def placed(self, devices: Sequence[str], processors: Mapping[str, int]) -> dict[str, str]:
        """Return the host of each device that is not on this host.

        Args:
            devices: those that may be elsewhere, in their order.
            processors: of each host by name, of this one under an empty name. Devices that ``place``
                does not name are divided by them, in slices of the order.

        Raises:
            SpecError: a pattern of ``place`` matches no device.
        """
        found: dict[str, str] = {}
        for pattern, host in self.place.items():
            matching = [one for one in devices if matches(pattern, one)]
            if not matching:
                raise SpecError(
                    f"place: {pattern} is no device of the experiment that can be on another host"
                )
            found |= dict.fromkeys(matching, host)
        if self.place:
            return found
        total, begun = sum(processors.values()), 0
        for number, name in enumerate(processors, 1):
            share = sum([*processors.values()][:number])
            end = len(devices) * share // total
            if name:
                found |= dict.fromkeys(devices[begun:end], name)
            begun = end
        return found


def _other(path: Path, name: str, host: _Host) -> OtherHost:
    if not (name.strip() and name.isprintable() and len(name) < 64):
        raise SpecError(f"{path}: hosts: {name!r} is no name: give it up to 63 printed characters")
    address, colon, port = host.agent.partition(":")
    address = _address(path, f"hosts.{name}.agent", address)
    if colon and not (re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 65_536):
        raise SpecError(f"{path}: hosts.{name}.agent: {port!r} is no port")
    underlay = _address(path, f"hosts.{name}.underlay", host.underlay or address)
    return OtherHost(name, address, int(port) if colon else AGENT_PORT, underlay)


def _address(path: Path, where: str, text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise SpecError(f"{path}: {where}: {text!r} is no IPv4 address") from None


def matches(pattern: str, device: str) -> bool:
    """Return True if a pattern is a device's name, or a range that it is in."""
    span = re.fullmatch(r"(.*?)(\d+)\.\.(\d+)", pattern)
    if span is None:
        return pattern == device
    stem, first, last = span.groups()
    number = device.removeprefix(stem)
    return device.startswith(stem) and number.isdigit() and int(first) <= int(number) <= int(last)


def with_places(value: Any, places: Mapping[str, str]) -> Any:
    """Return a JSON value in which each path of ``places`` is the one that it has there."""
    if isinstance(value, dict):
        return {key: with_places(one, places) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_places(one, places) for one in value]
    return places.get(value, value) if isinstance(value, str) else value


def patterns(devices: Iterable[str]) -> list[str]:
    """Return devices as ``place`` may name them: ``worker-0``, ``worker-10..19``."""
    found: list[tuple[str, int, int]] = []
    for device in devices:
        stem, dash, text = device.rpartition("-")
        number = int(text)
        if found and found[-1][0] == stem + dash and found[-1][2] == number - 1:
            found[-1] = (stem + dash, found[-1][1], number)
        else:
            found.append((stem + dash, number, number))
    return [
        f"{stem}{first}" if first == last else f"{stem}{first}..{last}"
        for stem, first, last in found
    ]
