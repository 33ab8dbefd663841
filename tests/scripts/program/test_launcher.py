"""The launcher unpacks its file once, mends what was damaged, and trusts no folder that others can change."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.program.archive import pack
from tests.support.missing_tools import missing, require_tool
from tests.support.program import ROOT

pytestmark = pytest.mark.integration

# In place of Python: shows what it was given. The shell begins with an absolute path, so no /proc is needed.
SHOWS = '#!/bin/sh\n[ "$2" = wait ] && exec sleep 60\necho "$@"\necho "${SSL_CERT_FILE:-none}"\nexit 7\n'


class Program:
    """A small program with the launcher of the real one. cache: where it unpacks, by XDG_CACHE_HOME."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "program"
        self.cache = folder / "cache"
        self.cache.mkdir()
        (folder / "shows").write_text(SHOWS)
        (folder / "shows").chmod(0o755)
        (folder / "large").write_bytes(os.urandom(3_000_000))
        self.large = (folder / "large").read_bytes()
        source = ROOT / "scripts" / "program" / "launcher.c"
        subprocess.run(
            [
                "cc",
                "-O1",
                "-Wall",
                "-Wextra",
                "-Wno-format-truncation",
                "-Werror",
                "-static",
                "-o",
                folder / "launcher",
                source,
                "-lzstd",
            ],
            check=True,
        )
        files = {"bin/python3": folder / "shows", "bin/fencepost": folder / "shows", "lib/large": folder / "large"}
        self.path.write_bytes(pack((folder / "launcher").read_bytes(), files, level=1))
        self.path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {"XDG_CACHE_HOME": str(self.cache), "PATH": os.environ["PATH"]}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        given = self.environment | environment
        return subprocess.run(
            [self.path, *arguments], env=given, capture_output=True, text=True, check=False, timeout=60
        )

    @property
    def unpacked(self) -> Path:
        (found,) = (path for path in (self.cache / "fencepost").iterdir() if path.is_dir())
        return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Program:
    require_tool("cc")
    found = subprocess.run(["cc", "-print-file-name=libzstd.a"], capture_output=True, text=True, check=True).stdout
    if not Path(found.strip()).is_absolute():
        missing("libzstd.a is not installed: .ci/run installs it")
    return Program(tmp_path_factory.mktemp("program"))


@pytest.fixture
def program(built: Program, tmp_path: Path) -> Program:
    """With an empty cache."""
    built.cache = tmp_path / "cache"
    built.cache.mkdir()
    return built


def test_arguments_and_the_exit_code_pass_through_without_another_process(program: Program) -> None:
    shown = program.run("a b", "", "--c")
    assert shown.stdout.splitlines()[0] == f"{program.unpacked}/bin/fencepost a b  --c"
    assert shown.returncode == 7
    with subprocess.Popen([program.path, "wait"], env=program.environment) as process:
        command = Path(f"/proc/{process.pid}/cmdline")
        deadline = time.monotonic() + 30
        while not command.read_bytes().startswith(b"sleep"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def test_what_is_unpacked_is_only_for_its_user_and_is_not_written_again(program: Program) -> None:
    program.run()
    large = program.unpacked / "lib" / "large"
    assert large.read_bytes() == program.large
    assert program.unpacked.stat().st_mode & 0o777 == 0o700
    before = large.stat()
    program.run()
    assert (large.stat().st_ino, large.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("damage", ["removed", "cut", "replaced by a link", "folder removed"])
def test_damage_is_mended_at_the_next_start(program: Program, tmp_path: Path, damage: str) -> None:
    program.run()
    large = program.unpacked / "lib" / "large"
    kept = large.open("rb")
    if damage == "cut":
        os.truncate(large, 1_000)
    else:
        large.unlink()
    if damage == "replaced by a link":
        (tmp_path / "elsewhere").write_bytes(b"x" * len(program.large))
        large.symlink_to(tmp_path / "elsewhere")
    if damage == "folder removed":
        large.parent.rmdir()
    with kept:
        assert program.run().returncode == 7
    assert not large.is_symlink()
    assert large.read_bytes() == program.large
    if damage == "replaced by a link":
        assert (tmp_path / "elsewhere").read_bytes() == b"x" * len(program.large)


def test_many_first_starts_at_once_all_run_whole_programs(program: Program) -> None:
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda _: program.run().returncode, range(8)))
    assert codes == [7] * 8
    assert (program.unpacked / "lib" / "large").read_bytes() == program.large


def test_a_start_that_is_killed_while_it_unpacks_leaves_no_harm(program: Program) -> None:
    for pause_ms in range(0, 20, 2):
        with subprocess.Popen([program.path], env=program.environment, stdout=subprocess.DEVNULL) as process:
            time.sleep(pause_ms / 1_000)
            process.kill()
    assert program.run().returncode == 7
    assert (program.unpacked / "lib" / "large").read_bytes() == program.large
    assert {path.name for path in program.unpacked.rglob("*") if path.is_file()} == {"python3", "fencepost", "large"}


@pytest.mark.parametrize("whose", ["writable by others", "a link", "a file"])
def test_a_cache_that_cannot_be_trusted_is_passed_over(program: Program, tmp_path: Path, whose: str) -> None:
    own = program.cache / "fencepost"
    if whose == "a file":
        own.touch()
    else:
        (tmp_path / "real").mkdir()
        (tmp_path / "real").chmod(0o777)
        if whose == "a link":
            (tmp_path / "real").chmod(0o700)
            own.symlink_to(tmp_path / "real")
        else:
            (tmp_path / "real").rename(own)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    shown = program.run(TMPDIR=str(temporary))
    assert shown.stdout.startswith(f"{temporary}/fencepost-{os.geteuid()}/")


def test_a_cut_file_is_refused_in_one_sentence(program: Program, tmp_path: Path) -> None:
    content = program.path.read_bytes()
    for name, kept in {"end": content[:-10], "middle": content[:-2_000_000] + content[-64:]}.items():
        cut = tmp_path / name
        cut.write_bytes(kept)
        cut.chmod(0o755)
        ended = subprocess.run([cut], env=program.environment, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 1
        assert ended.stderr.startswith("fencepost: its own ")
        assert len(ended.stderr.splitlines()) == 1


def test_certificates_of_the_system_are_named_unless_the_user_has(program: Program) -> None:
    named = program.run().stdout.splitlines()[1]
    assert named == "none" or Path(named).is_file()
    assert program.run(SSL_CERT_FILE="/mine").stdout.splitlines()[1] == "/mine"
    assert program.run(SSL_CERT_DIR="/mine").stdout.splitlines()[1] == "none"
