"""Podman with a store of its own, in a mount namespace in which it finds control groups as its runtime takes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from tests.docker.docker_files import ROOT
from tests.docker.test_images import base

HYBRID = Path("/sys/fs/cgroup/unified")
"""Where both versions of control groups are mounted; crun refuses to start beside it."""


class Podman:
    """A context manager. folder: of its images and containers, and of all that it writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Not more than this process has itself: to raise a limit needs a right that root may lack.
        files = os.sysconf("SC_OPEN_MAX")
        (folder / "containers.conf").write_text(
            f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]\n'
            f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\ntmp_dir = "{folder}/tmp"\n',
            encoding="utf-8",
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n',
            encoding="utf-8",
        )
        unmount = f"umount {HYBRID}; " if HYBRID.is_dir() else ""
        self._namespace = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", f"{unmount} echo ready; exec sleep infinity"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._namespace.stdout is not None
        assert self._namespace.stdout.readline() == "ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run("pod", "rm", "--all", "--force", "--time=0")
        self.run("rm", "--all", "--force", "--time=0")
        self._namespace.kill()
        self._namespace.communicate()

    def run(self, *arguments: str, document: str | None = None) -> subprocess.CompletedProcess[str]:
        return self.beside("podman", *arguments, document=document)

    def beside(
        self, *command: str, document: str | None = None, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program that starts Podman."""
        files = {
            "CONTAINERS_CONF": f"{self._folder}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{self._folder}/storage.conf",
        }
        return subprocess.run(
            ["nsenter", f"--target={self._namespace.pid}", "--mount", *command],
            env={**os.environ, **files, **(variables or {})},
            input=document,
            capture_output=True,
            text=True,
            check=False,
        )

    def __call__(self, *arguments: str, document: str | None = None) -> str:
        done = self.run(*arguments, document=document)
        assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
        return done.stdout.strip()

    def build(self, image: str, dockerfile: str, *options: str) -> None:
        self("import", "--quiet", str(base()), "localhost/base")
        where = ("--file", str(ROOT / dockerfile), "--tag", image, str(ROOT))
        self("build", "--quiet", "--isolation=chroot", "--format=docker", *options, *where)

    def play(self, *objects: dict[str, Any]) -> None:
        self("kube", "play", "-", document=yaml.safe_dump_all(objects))

    def process_id(self, container: str) -> int:
        (found,) = json.loads(self("inspect", container))
        number: int = found["State"]["Pid"]
        return number

    def kill(self, container: str) -> None:
        os.kill(self.process_id(container), signal.SIGKILL)
