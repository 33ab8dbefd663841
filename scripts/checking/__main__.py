"""`./scripts/check`: style, types, layers and the nearest tests of a change, within a minute.

Exit code 0: nothing failed; 1: something failed; 2: a path is not there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.checking.choice import choose
from scripts.checking.imports import Imports, all_imports, is_missing
from scripts.checking.timed_tests import TimedTests, file_of, files_of
from scripts.checking.type_daemon import Types, errors_in

BUDGET_S = 60.0
MOST_FILES = 80
"""Limit of test files that are collected: collecting all of them alone would take the time."""
MOST_FOLDERS = 4
"""Limit of folders that are named in a command."""
MAIN_BRANCHES = ("upstream/main", "origin/main", "main")
NOT_IN_THE_SMALL_ENVIRONMENT = ("cryptography", "playwright", "psycopg", "pyspark")
"""Packages that only the environment for all tests has."""


class WrongPathError(Exception):
    """A path of the command line is no file or folder of the checkout."""


class Check:
    """One run: its steps, what failed, and what was left out."""

    def __init__(self, root: Path, tools: Path, budget_s: float = BUDGET_S) -> None:
        self._root = root
        self._tools = tools
        self._started_s = time.monotonic()
        self._ends_s = self._started_s + budget_s
        self._failed: list[str] = []
        self._left_out: list[str] = []

    def run(self, changed: Sequence[str]) -> int:
        # A file that was moved away may be there still by way of a link.
        present = [path for path in changed if (self._root / path).resolve() == self._root / path]
        present = [path for path in present if (self._root / path).is_file()]
        sources = [path for path in present if path.endswith((".py", ".pyi")) and not path.startswith("docs/")]
        types = None
        if any(path.endswith((".py", ".pyi", ".toml")) for path in changed):
            types = Types(self._tools / "dmypy", self._root, has_all_packages=has_all_packages())
        if sources:
            self._step("style", "ruff", "check", "--quiet", *sources)
            self._step("format", "ruff", "format", "--check", "--quiet", *sources)
        if types is not None:
            self._step("layers", "lint-imports")
        self._tests(changed)
        if types is not None:
            self._end_types(types)
        if self._left_out:
            print(f"left out: {'; '.join(self._left_out)}")
        outcome = f"failed: {', '.join(self._failed)}" if self._failed else "passed"
        print(f"{outcome}, after {time.monotonic() - self._started_s:.0f} s; ./scripts/test runs everything")
        return 1 if self._failed else 0

    def _report(self, name: str, passed: bool, began_s: float) -> None:
        print(f"{name}: {'passed' if passed else 'failed'} after {time.monotonic() - began_s:.1f} s", flush=True)
        if not passed:
            self._failed.append(name)

    def _step(self, name: str, tool: str, *arguments: str) -> None:
        began_s = time.monotonic()
        command = [str(self._tools / tool), *arguments]
        done = subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout + done.stderr, end="")
        self._report(name, done.returncode == 0, began_s)

    def _end_types(self, types: Types) -> None:
        answer = types.wait(self._ends_s - time.monotonic())
        if answer is None:
            self._left_out.append("types, as their daemon reads all files first: run ./scripts/check again")
            return
        if not answer:
            # In a file that imports a missing package, errors may follow from that alone.
            errors = errors_in(types.output, self._has_its_packages)
            found = ": error:" in types.output
            if errors or not found:
                print("\n".join(errors) if errors else types.output)
            else:
                answer = True
        self._report("types", answer, self._started_s)

    def _has_its_packages(self, path: str) -> bool:
        source = (self._root / path).read_text(encoding="utf-8") if (self._root / path).exists() else ""
        return not any(map(is_missing, all_imports(source)))

    def _tests(self, changed: Sequence[str]) -> None:
        files = [str(path.relative_to(self._root)) for path in sorted((self._root / "tests").rglob("test_*.py"))]
        choice = choose(changed, files)
        imports = Imports(self._root)
        chosen = [*choice.mirrored, *choice.nearby]
        missing = {path: packages for path in chosen if (packages := imports.missing(path))}
        runnable = [path for path in chosen if path not in missing]
        timed = TimedTests(set(choice.mirrored), self._ends_s, time.monotonic)
        if runnable:
            self._run_tests(runnable[:MOST_FILES], timed)
        for node_id, package in timed.needing.items():
            missing.setdefault(file_of(node_id), set()).add(package)
        self._say_what_is_left_out(timed.left_out, runnable[MOST_FILES:], missing)

    def _run_tests(self, arguments: Sequence[str], timed: TimedTests) -> None:
        began_s = time.monotonic()
        # In the order of TimedTests; a line of our own says what was left out.
        options = ["--quiet", "--no-header", "-rfE", "--tb=short", "-p", "no:randomly", "-p", "no:cacheprovider"]
        status = pytest.main([*options, *arguments], plugins=[timed])
        self._report("tests", status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), began_s)

    def _say_what_is_left_out(
        self, for_time: Sequence[str], not_collected: Sequence[str], missing: dict[str, set[str]]
    ) -> None:
        reasons = []
        if for_time:
            reasons.append(f"{len(for_time)} tests in {counted(files_of(for_time))} for time")
        if not_collected:
            reasons.append(f"all tests in {counted(not_collected)} for time")
        if missing:
            packages = sorted(set().union(*missing.values()))
            reasons.append(f"tests in {counted(sorted(missing))} that need {', '.join(packages)}")
        if reasons:
            folders = sorted({path.rpartition("/")[0] for path in (*files_of(for_time), *not_collected, *missing)})
            command = " ".join(["./scripts/test", *(folders if len(folders) <= MOST_FOLDERS else [])])
            self._left_out.append(f"{'; '.join(reasons)}: {command}")


def counted(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{len(files)} files"


def has_all_packages() -> bool:
    return not any(is_missing(package) for package in NOT_IN_THE_SMALL_ENVIRONMENT)


def git(root: Path, *arguments: str) -> list[str]:
    """What git prints, split at NUL or line ends. Raises CalledProcessError."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return [one for one in done.stdout.replace("\0", "\n").splitlines() if one]


def changed_files(root: Path) -> list[str]:
    """The files that differ from where the branch left main, deleted and new ones included."""
    base = "HEAD"
    for branch in MAIN_BRANCHES:
        try:
            (base,) = git(root, "merge-base", "HEAD", branch)
            break
        except subprocess.CalledProcessError:
            continue
    differing = git(root, "diff", "--name-only", "--no-renames", "-z", base)
    return sorted({*differing, *git(root, "ls-files", "--others", "--exclude-standard", "-z")})


def named_files(root: Path, called_from: Path, paths: Sequence[str]) -> list[str]:
    """The files that the paths name or hold. Raises WrongPathError."""
    found: set[str] = set()
    for path in paths:
        resolved = (called_from / path).resolve()
        if not resolved.exists():
            raise WrongPathError(f"there is no file or folder {path}")
        if root not in (resolved, *resolved.parents):
            raise WrongPathError(f"{path} is not in {root}")
        inside = str(resolved.relative_to(root))
        listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", inside)
        found.update(one for one in listed if (root / one).is_file())
    return sorted(found)


def main(arguments: Sequence[str], root: Path, tools: Path) -> int:
    """Check what has changed, or the given paths. tools: the folder of ruff, dmypy and lint-imports."""
    parser = argparse.ArgumentParser(prog="./scripts/check", description="Style, types, layers and the nearest tests.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders; else what has changed since main")
    parser.add_argument("--from", dest="called_from", type=Path, default=root, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        files = named_files(root, options.called_from, options.paths) if options.paths else changed_files(root)
    except WrongPathError as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    if not files:
        print("nothing has changed since main")
        return 0
    return Check(root, tools).run(files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[2], Path(sys.executable).parent))
