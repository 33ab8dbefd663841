"""Which tests a change asks for. Pure: paths relative to the root in, paths out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

TESTS = PurePosixPath("tests")
WORDS = "tests/test_tidy.py"
FORM = (WORDS, "tests/test_mirror.py", "tests/test_sizes.py", "tests/test_rooms.py")
"""Tests about the form of all files, which come last."""
PROJECT_FILES = "tests/test_project_files.py"
ENVIRONMENT = "tests/scripts/test_environment.py"
PARTS = "tests/scripts/test_parts.py"
TESTS_OF = {
    ".ci/run": (PROJECT_FILES, PARTS),
    "pyproject.toml": (PROJECT_FILES, ENVIRONMENT),
    "requirements.lock": (ENVIRONMENT,),
    "scripts/environment": (ENVIRONMENT, PARTS),
    "scripts/lock": (ENVIRONMENT,),
    "scripts/test": (PROJECT_FILES, PARTS),
    "README.md": ("tests/test_readme.py",),
}
"""The tests of files that no test is named after."""
TESTS_OF_FOLDERS = {".github": (PROJECT_FILES,), "requirements": (ENVIRONMENT,)}
CODE = ("fencepost", "tests", "scripts")


@dataclass(frozen=True)
class Choice:
    """Test files by how near they are to a change.

    mirrored: at the path of a changed module, or changed themselves.
    nearby:   the other ones in the folders of the mirrored ones, then those about the form of all files.
    """

    mirrored: tuple[str, ...]
    nearby: tuple[str, ...]


def choose(changed: Iterable[str], test_files: Collection[str]) -> Choice:
    """Choose the tests of the changed files; test_files: those that there are."""
    mirrored: dict[str, None] = {}
    nearby: dict[str, None] = {}
    form: dict[str, None] = {}
    for path in map(PurePosixPath, changed):
        mirrored |= dict.fromkeys(_mirrored(path, test_files))
        nearby |= dict.fromkeys(_nearby(path, test_files))
        if path.suffix == ".py" and path.parts[0] in CODE:
            form |= dict.fromkeys(FORM)
        elif path.suffix == ".md":
            form[WORDS] = None
    nearby |= dict.fromkeys(one for one in form if one in test_files)
    return Choice(tuple(mirrored), tuple(one for one in nearby if one not in mirrored))


def _mirrored(path: PurePosixPath, test_files: Collection[str]) -> list[str]:
    if str(path) in test_files:
        return [str(path)]
    named = TESTS_OF.get(str(path), TESTS_OF_FOLDERS.get(path.parts[0], ()))
    if path.suffix == ".py" and path.parts[0] in ("fencepost", "scripts"):
        # test_recovery.py, and test_recovery_of_indexes.py where the tests of one module fill several files.
        names = (f"test_{path.stem}.py", f"test_{path.stem}_")
        named = tuple(
            one
            for one in test_files
            if PurePosixPath(one).parent in _folders(path)
            and (PurePosixPath(one).name == names[0] or PurePosixPath(one).name.startswith(names[1]))
        )
    return sorted(one for one in named if one in test_files)


def _folders(path: PurePosixPath) -> list[PurePosixPath]:
    """Where the tests of a module may lie, the likeliest first."""
    inside = PurePosixPath(*path.parts[1:-1])
    return [TESTS / inside] if path.parts[0] == "fencepost" else [TESTS / "scripts" / inside, TESTS / inside]


def _nearby(path: PurePosixPath, test_files: Collection[str]) -> list[str]:
    """The test files in the folder of a file's tests, or in the nearest one around it that has any."""
    if path.name == "conftest.py":
        return sorted(one for one in test_files if path.parent in PurePosixPath(one).parents)
    starts: list[PurePosixPath] = []
    if path.suffix == ".md" or path.parts[0] == "docs":
        starts = [TESTS / "docs"]
    elif path.parts[0] == "tests":
        starts = [path.parent]
    elif path.parts[0] in CODE:
        starts = _folders(path)
    elif path.parts[0] == "docker":
        starts = [TESTS / "docker"]
    for start in starts:
        for folder in (start, *start.parents):
            if folder in (TESTS, *TESTS.parents):
                break  # what lies beside all rooms is in none
            found = sorted(one for one in test_files if PurePosixPath(one).parent == folder)
            if found:
                return found
    return []
