"""What an installation is made of: steps as values, which one interpreter (`agent.node.install`) carries out in order.

They are structs with a tag and not dataclasses, as they travel as JSON to the process that carries them out.
"""

from __future__ import annotations

import msgspec


class ReleaseFile(msgspec.Struct, frozen=True, tag="release-file"):
    """The one file of a GitHub release whose whole name matches `pattern`. It must have the SHA-256 that GitHub
    publishes for it, or, where the cluster has a mirror, the one that the control plane told."""

    repository: str
    tag_name: str
    pattern: str


class KnownFile(msgspec.Struct, frozen=True, tag="file"):
    """A file whose SHA-256 is known beforehand."""

    url: str
    sha256: str
    size_bytes: int | None = None


File = ReleaseFile | KnownFile


class Unpack(msgspec.Struct, frozen=True, tag="unpack"):
    """An archive (tar, zip) into the installation. `beside`: its files, without their folders, beside the file of
    that name; so a runtime comes to lie where an executable looks for it."""

    file: File
    beside: str = ""


class Program(msgspec.Struct, frozen=True, tag="program"):
    """A program of the machine that is needed; `package` brings it where the agent may install packages."""

    name: str
    package: str
    why: str


class Environment(msgspec.Struct, frozen=True, tag="environment"):
    """A Python environment built by uv. It is resolved as the index stood a day after `repository` released
    `tag_name`, written to `llmgw-requirements.txt` with the index's SHA-256 of every file, and installed from that
    list alone. `wheels`: files that come from elsewhere; `torch`: the build of PyTorch, as uv names it."""

    python: str
    requirements: tuple[str, ...]
    repository: str
    tag_name: str
    wheels: tuple[File, ...] = ()
    torch: str = ""


class Libraries(msgspec.Struct, frozen=True, tag="libraries"):
    """Every shared library that these files (by pattern, anywhere in the installation) need is there, and the
    system's C library is new enough for them."""

    of: tuple[str, ...]


class Check(msgspec.Struct, frozen=True, tag="check"):
    """A command (its first word a file of the installation) that must end with 0 and say something that matches
    `expect` within `timeout_s`. `otherwise`: what it means where it does not. Output that matches `later` says
    nothing about the build: it is tried again."""

    argv: tuple[str, ...]
    expect: str
    otherwise: str
    timeout_s: float = 60.0
    later: str = ""


Step = Unpack | Program | Environment | Libraries | Check


class Plan(msgspec.Struct, frozen=True):
    """One build of one version. `run`: the executable or interpreter, by its name anywhere in the installation;
    `again`: what is looked at every ten minutes from then on."""

    engine: str
    version: str
    build: str
    run: str
    steps: tuple[Step, ...]
    again: tuple[Libraries | Check, ...]
    room_bytes: int

    @property
    def name(self) -> str:
        """Of its folder, below the engine's."""
        return f"{self.version}-{self.build}" if self.build else self.version


def name_of(file: File) -> str:
    """As it is spoken of before its real name is known."""
    return file.url.rsplit("/", 1)[-1] if isinstance(file, KnownFile) else f"{file.repository} {file.tag_name}"
