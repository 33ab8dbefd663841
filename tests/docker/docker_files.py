"""Reads Dockerfiles and the compose file far enough to check what they say, without a container engine."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"


class Instruction(NamedTuple):
    """One instruction with its continuation lines joined."""

    name: str
    arguments: str


class Dockerfile:
    """A Dockerfile's instructions, and what its last stage ends up with."""

    def __init__(self, path: Path) -> None:
        text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
        joined = re.sub(r"\\\n", " ", text)
        self.instructions = [
            Instruction(*line.split(maxsplit=1)) for line in map(str.strip, joined.splitlines()) if line
        ]

    def all(self, name: str) -> list[str]:
        return [instruction.arguments for instruction in self.instructions if instruction.name == name]

    def last(self, name: str) -> str:
        return self.all(name)[-1]

    def command(self, name: str) -> list[str]:
        """The last ENTRYPOINT, CMD or HEALTHCHECK in its JSON form."""
        arguments = self.last(name)
        command: list[str] = json.loads(arguments[arguments.index("[") :])
        return command

    @property
    def environment(self) -> dict[str, str]:
        pairs = (pair.split("=", 1) for arguments in self.all("ENV") for pair in shlex.split(arguments))
        return dict(pairs)

    @property
    def base_images(self) -> list[str]:
        """What the stages are built on, arguments filled in."""
        values = dict(pair.split("=", 1) for pair in self.all("ARG"))
        return [re.sub(r"\$(\w+)", lambda name: values[name[1]], line.split()[0]) for line in self.all("FROM")]

    @property
    def copied(self) -> list[str]:
        """What is copied from the build context."""
        return [
            source
            for arguments in self.all("COPY")
            if not arguments.startswith("--from=")
            for source in arguments.split()[:-1]
        ]


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DOCKER / name).read_text())
    return document
