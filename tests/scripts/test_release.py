"""A dry run of a release builds and tries all but the image, and says what it did; the workflow publishes just that."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from scripts.releasing.__main__ import repository
from scripts.releasing.conditions import notes_for, version_of
from scripts.releasing.image import BASE, ENGINE, build
from scripts.releasing.statements import sums
from tests.docker import test_images
from tests.support.missing_tools import require_tool
from tests.support.program import ROOT, release_files, release_output

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
VERSION = version_of(ROOT)


def release(*arguments: str, **environment: str) -> str:
    """What a refusal says."""
    command = [str(ROOT / "scripts" / "release"), *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("arguments", [(), ("--dry",), ("",)])
def test_what_is_no_tag_is_refused_with_what_to_give(arguments: tuple[str, ...]) -> None:
    assert release(*arguments) == "release: give the tag of the release, such as v0.2.0, or --dry-run\n"


def test_a_folder_with_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "of-another-release.whl").write_text("wheel", encoding="utf-8")
    assert "has files, which would be taken for the release's" in release("--dry-run", FENCEPOST_DIST=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["of-another-release.whl"]


def test_a_python_that_is_too_old_is_named() -> None:
    assert "is not Python 3.11 or later" in release("--dry-run", FENCEPOST_PYTHON="false")


@pytest.mark.integration
@pytest.mark.timeout(1_200)
def test_a_dry_run_has_tried_what_it_built_and_says_that_there_is_no_image() -> None:
    said = [line.removeprefix("release: ") for line in release_output().splitlines() if line.startswith("release: ")]
    for sentence in (
        "the lock files fit pyproject.toml",
        "the source archive makes the same wheel as the checkout",
        "a package index takes the metadata of wheel and source archive",
        "there is no image: docker buildx and buildah are missing, or FENCEPOST_IMAGE_ENGINE is none",
        "the wheel serves in an empty environment",
        "the program in one file serves",
    ):
        assert sentence in said


@pytest.mark.integration
@pytest.mark.timeout(1_200)
def test_the_workflow_would_attest_each_file_and_publish_the_notes() -> None:
    files = release_files()
    names = sums(files / "SHA256SUMS").keys()
    assert f"the workflow will attest these {len(names)} files" in release_output()
    notes = notes_for((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), VERSION, repository())
    assert (files / "NOTES.md").read_text(encoding="utf-8") == f"{notes}\n"


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_the_image_is_an_archive_that_any_registry_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_tool("buildah")
    monkeypatch.setenv("STORAGE_DRIVER", "vfs")
    monkeypatch.setenv(ENGINE, "buildah")
    monkeypatch.setenv(BASE, test_images.BASE)
    container = subprocess.run(
        ["buildah", "from", "scratch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run(["buildah", "add", "--quiet", container, test_images.base(), "/"], check=True)
    subprocess.run(["buildah", "commit", "--quiet", "--rm", container, test_images.BASE], check=True)
    build("fencepost:tried", tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as archive:
        assert {"index.json", "oci-layout"} <= set(archive.getnames())


def test_nothing_is_published_that_was_not_built_and_attested_before() -> None:
    jobs = WORKFLOW["jobs"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "build": None,
        "attest": "build",
        "image": "attest",
        "pypi": "attest",
        "github": ["image", "pypi"],
    }
    builds = [
        name for name, job in jobs.items() if any("./scripts/release" in step.get("run", "") for step in job["steps"])
    ]
    assert builds == ["build"]


def test_each_job_may_write_what_it_publishes_and_nothing_else() -> None:
    may = {
        name: sorted(what for what, how in job.get("permissions", {}).items() if how == "write")
        for name, job in WORKFLOW["jobs"].items()
    }
    assert may == {
        "build": [],
        "attest": ["attestations", "id-token"],
        "image": ["attestations", "id-token", "packages"],
        "pypi": ["id-token"],
        "github": ["contents"],
    }
    assert WORKFLOW["jobs"]["pypi"]["environment"] == "pypi"


def test_each_action_is_pinned_to_a_full_version_and_no_secret_is_used() -> None:
    uses = [step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step]
    assert [one for one in uses if not re.fullmatch(r"[\w./-]+@v\d+\.\d+\.\d+", one)] == []
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
