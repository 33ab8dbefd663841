"""The unit of docs/systemd.md under a real systemd, which boots in the root of the image."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.soak.free_port import free_port
from tests.docker.test_images import BASE, Engine, commit_and_read
from tests.docs.test_deployment_pages import file_of
from tests.support.conditions import PATIENCE_S, until
from tests.support.missing_tools import missing, require_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

UNIT = "etc/systemd/system/fencepost.service"


class System:
    """A booted root. port: of its broker, on this machine's network."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root, self.port = root, free_port()
        unit = file_of("systemd.md", "fencepost.service").replace(":9092", f":{self.port}")
        (root / UNIT).write_text(unit, encoding="utf-8")
        command = ("systemd-nspawn", "--boot", f"--directory={root}", "--register=no", "--keep-unit")
        # What systemd-nspawn mounts does not outlive it in a namespace of its own.
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                ["unshare", "--mount", *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self._log = log
        self._first = until(self._find_first)
        until(lambda: self("systemctl", "is-system-running") in ("running", "degraded"))

    def _find_first(self) -> int | None:
        assert self._process.poll() is None, self._log.read_text(errors="replace")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def __call__(self, *command: str) -> str:
        """Run a command in the root; return its output."""
        here = ["nsenter", f"--target={self._first}", "--all", *command]
        done = subprocess.run(here, capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).strip()

    def shown(self, name: str) -> str:
        return self("systemctl", "show", "fencepost", f"--property={name}", "--value")

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    if os.geteuid() != 0:
        missing("systemd is started as root here")
    for tool in ("buildah", "mmdebstrap", "unshare", "nsenter", "systemd-nspawn"):
        require_tool(tool)
    folder = tmp_path_factory.mktemp("systemd")
    engine = Engine(folder)
    engine.build("Dockerfile", "fencepost", f"--build-arg=PYTHON={BASE}")
    with engine.container("fencepost") as container:
        root = ("run", "--isolation=chroot", "--user=0:0", container, "--")
        engine(*root, "apt-get", "update", "--quiet")
        engine(*root, "apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "systemd-sysv", "dbus")
        made = System(Path(engine("mount", container)), folder / "console")
        yield made
        made.end()
        engine("umount", container)
    engine("rmi", "--all", "--force")


@pytest.fixture
def started(system: System) -> Iterator[System]:
    said = system("systemctl", "start", "fencepost")
    assert said == "", said + system("journalctl", "--unit", "fencepost")
    yield system
    system("systemctl", "stop", "fencepost")


def test_the_unit_is_active_once_the_broker_serves_as_its_own_user(started: System) -> None:
    assert started("systemctl", "is-active", "fencepost") == "active"
    commit_and_read(started.port)
    status = started("cat", f"/proc/{started.shown('MainPID')}/status")
    assert re.search(r"^Uid:\s+10001\s", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    limits = started("cat", f"/proc/{started.shown('MainPID')}/limits")
    files = re.search(r"^Max open files +(\d+)", limits, re.MULTILINE)
    # Root without the right to raise limits has those of this machine.
    assert files is not None
    assert int(files[1]) in (65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    state = Path(f"{started.root}/var/lib/fencepost").stat()
    assert (state.st_uid, state.st_mode & 0o777) == (10001, 0o700)


def test_a_broker_that_is_killed_is_started_again(started: System) -> None:
    before = started.shown("MainPID")
    started("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "fencepost")
    until(lambda: started("systemctl", "is-active", "fencepost") == "active" and started.shown("MainPID") != before)
    assert started.shown("NRestarts") == "1"


def test_a_stop_is_clean(started: System) -> None:
    started("systemctl", "stop", "fencepost")
    assert started.shown("ActiveState") == "inactive"
    assert started.shown("Result") == "success"


def test_wrong_settings_fail_once_with_the_reason_in_the_journal(system: System) -> None:
    drop_in = system.root / f"{UNIT}.d" / "wrong.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nEnvironment=FENCEPOST_NUM_PARTITIONS=many\n", encoding="utf-8")
    system("systemctl", "daemon-reload")
    try:
        assert "failed" in system("systemctl", "start", "fencepost")
        assert system.shown("ExecMainStatus") == "2"
        assert system.shown("ActiveState") == "failed"
        assert "num.partitions" in system("journalctl", "--unit", "fencepost", "--no-pager")
    finally:
        drop_in.unlink()
        system("systemctl", "daemon-reload")
        system("systemctl", "reset-failed", "fencepost")
