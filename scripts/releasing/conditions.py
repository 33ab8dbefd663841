"""`python -m scripts.releasing.conditions TAG`: names what would make a release of this checkout wrong.

For `--dry-run` in place of the tag, it is that of the version. Needs the standard library alone.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def version_of(root: Path) -> str:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version: str = project["version"]
    return version


def section(changelog: str, name: str) -> tuple[str, str] | None:
    """What stands behind a name in its heading, and the text below; None without such a section."""
    found = re.search(rf"^## \[{re.escape(name)}\](.*)\n((?:(?!## \[).*\n?)*)", changelog, re.MULTILINE)
    return None if found is None else (found[1].strip(), found[2].strip())


def notes_for(changelog: str, version: str, repository: str | None) -> str:
    """The text for the page of a release. repository: its address, to which links into the checkout lead there."""
    text = (section(changelog, version) or ("", ""))[1]
    return text if repository is None else text.replace("](docs/", f"]({repository}/blob/v{version}/docs/")


def notes_refusals(changelog: str, version: str, today: dt.date) -> list[str]:
    refused = []
    found = section(changelog, version)
    if found is None or not found[1]:
        refused.append(f"CHANGELOG.md has no section [{version}]")
    else:
        try:
            date = dt.date.fromisoformat(found[0].removeprefix("- "))
        except ValueError:
            refused.append(f"the section [{version}] of CHANGELOG.md has no date: ## [{version}] - {today}")
        else:
            if date > today:
                refused.append(f"the section [{version}] of CHANGELOG.md is of {date}, which is to come")
    unreleased = section(changelog, "Unreleased")
    if unreleased is not None and unreleased[1]:
        refused.append(f"CHANGELOG.md has lines under Unreleased: move them under [{version}]")
    return refused


def tree_refusals(root: Path) -> list[str]:
    command = ["git", "-C", str(root), "status", "--porcelain"]
    changed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    if not changed:
        return []
    return [f"the working tree differs from its commit in {len(changed)} files, such as {changed[0][3:]}"]


def tag_refusals(root: Path, tag: str) -> list[str]:
    def commit(name: str) -> str:
        command = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    tagged = commit(f"refs/tags/{tag}")
    if tagged in ("", commit("HEAD")):
        return []
    return [f"{tag} is already the tag of {tagged[:9]}, another commit: set the next version, or check out {tag}"]


def refusals(root: Path, tag: str, today: dt.date) -> list[str]:
    """All, a sentence each; none if the checkout is ready."""
    version = version_of(root)
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong_tag = [] if tag == f"v{version}" else [f"the tag is {tag}, and that of the version here is v{version}"]
    return [*wrong_tag, *tag_refusals(root, tag), *notes_refusals(changelog, version, today), *tree_refusals(root)]


def main() -> int:
    tag = sys.argv[1] if sys.argv[1] != "--dry-run" else f"v{version_of(ROOT)}"
    found = refusals(ROOT, tag, dt.datetime.now(dt.UTC).date())
    for each in found:
        print(f"release: {each}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
