"""Files for contributors and for CI: valid, and what they run is there; a release is refused without its notes."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MINORS = [
    int(found[1])
    for one in PROJECT["project"]["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", one))
]
"""The versions of Python that the classifiers name: 11 for 3.11."""


def steps(path: Path) -> list[dict[str, Any]]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [step for job in content["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_a_trigger_few_permissions_limits_and_commands_that_are_there(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content[True], "`on` is the key true in YAML 1.1"
    assert content["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in content["jobs"].values())
    for step in steps(path):
        if "run" in step:
            checked = subprocess.run(["bash", "-n", "-c", step["run"]], capture_output=True, text=True, check=False)
            assert checked.returncode == 0, checked.stderr
            for script in re.findall(r"(?:^|\s)((?:\./scripts|\.ci)/\w+)", step["run"]):
                assert os.access(ROOT / script, os.X_OK), script


def test_ci_runs_each_part_in_a_job_of_its_own_and_units_on_all_pythons_that_are_promised() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert 'exec ./scripts/test "$@"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    parts = re.search(r"^PARTS=\((.+)\)$", (ROOT / "scripts" / "test").read_text(encoding="utf-8"), re.MULTILINE)
    assert parts is not None
    assert [one["part"] for one in jobs["parts"]["strategy"]["matrix"]["include"]] == parts[1].split()
    assert ".ci/run --part ${{ matrix.part }}" in [step.get("run") for step in jobs["parts"]["steps"]]
    setups = [step for step in jobs["parts"]["steps"] if "setup-python" in step.get("uses", "")]
    tested = [setups[0]["with"]["python-version"], *jobs["units"]["strategy"]["matrix"]["python"]]
    assert tested == [f"3.{minor}" for minor in MINORS]


def test_the_hooks_before_a_commit_are_tools_of_the_environment_and_pass_on_this_checkout() -> None:
    content = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = content["repos"]
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    packages = "\n".join(PROJECT["project"]["optional-dependencies"]["test"])
    for hook in hooks.values():
        assert hook["language"] == "system"
        program, _, _ = hook["entry"].partition(" ")
        package = {"lint-imports": "import-linter"}.get(Path(program).name, Path(program).name)
        assert package in packages
    for name in ("ruff-check", "ruff-format"):
        command = [*hooks[name]["entry"].split(), "tests/test_project_files.py"]
        assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_editors_get_the_line_length_of_the_formatter() -> None:
    parser = configparser.ConfigParser()
    parser.read_string("[top]\n" + (ROOT / ".editorconfig").read_text(encoding="utf-8"))
    assert parser["top"]["root"] == "true"
    assert parser["*.{py,md}"]["max_line_length"] == str(PROJECT["tool"]["ruff"]["line-length"])


def test_the_changelog_has_a_section_for_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = text.partition(f"## [{PROJECT['project']['version']}]")[2].partition("\n## [")[0]
    assert len(section.split()) > 100


@pytest.mark.parametrize(
    ("tag", "message"),
    [("v9.9.9", "the tag is v9.9.9"), ("0.2.0", "the tag is 0.2.0"), (None, "the tag of the release")],
)
def test_a_release_whose_tag_is_not_the_version_is_refused(tag: str | None, message: str) -> None:
    command = [str(ROOT / "scripts" / "release"), *([tag] if tag else [])]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert message in refused.stderr


def test_pip_and_the_scripts_take_exactly_the_versions_of_python_that_the_classifiers_name() -> None:
    first, last = MINORS[0], MINORS[-1]
    assert list(range(first, last + 1)) == MINORS
    assert PROJECT["project"]["requires-python"] == f">=3.{first},<3.{last + 1}"
    assert PROJECT["tool"]["mypy"]["python_version"] == f"3.{first}"
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py3{first}"
    environment = (ROOT / "scripts" / "environment").read_text(encoding="utf-8")
    assert re.findall(r"\bpython3\.(\d+)", environment) == [str(minor) for minor in reversed(MINORS)]
    assert f"(3, {first}) <= sys.version_info < (3, {last + 1})" in environment


def test_the_cost_of_a_request_has_a_limit_for_each_python() -> None:
    known = json.loads((ROOT / "tests" / "costs" / "baseline.json").read_text(encoding="utf-8"))
    assert list(known) == [f"3.{minor}" for minor in MINORS]


LISTS_OF_PYTHONS = ("CONTRIBUTING.md", "docs/faq.md", "docs/first-steps.md", "docs/upgrade.md", "scripts/environment")


def wrong_lists_of_pythons(text: str) -> list[str]:
    """The lists such as "3.11, 3.12 or 3.13", and "3.11 to 3.13", that do not name the versions of the classifiers."""
    lists = re.findall(r"Python (3\.\d+(?:(?:, | to | and | or )3\.\d+)+)", text)
    names = [f"3.{minor}" for minor in MINORS]
    return [one for one in lists if one != f"{names[0]} to {names[-1]}" and re.findall(r"3\.\d+", one) != names]


def test_pages_name_the_versions_of_python_that_the_classifiers_name() -> None:
    pages = [path for folder in ("docs", "docs/clients") for path in sorted((ROOT / folder).glob("*.md"))]
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in [ROOT / "README.md", *pages, *(ROOT / name for name in LISTS_OF_PYTHONS)]
    }
    assert {name: wrong for name, text in texts.items() if (wrong := wrong_lists_of_pythons(text))} == {}
    for name in LISTS_OF_PYTHONS:
        assert re.search(r"Python 3\.\d+(, | to )3\.\d+", texts[name]), name


def test_a_page_without_the_newest_python_is_found() -> None:
    all_but_one = [f"3.{minor}" for minor in MINORS[:-1]]
    lists = [f"{all_but_one[0]} to {all_but_one[-1]}", ", ".join(all_but_one)]
    assert wrong_lists_of_pythons(f"Python {lists[0]}. Python {lists[1]} and others. In Python 3.1, 2 is 2.") == lists
