"""The files that the workflow will attest are those of the release, with their digests and lists of parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.releasing.statements import StatementError, check, digest_of, statements

WORKFLOW = """
jobs:
  attest:
    steps:
      - uses: actions/attest-build-provenance@v2
        with: {subject-checksums: dist/SHA256SUMS}
      - uses: actions/attest-sbom@v2
        with: {subject-path: "dist/*.whl", sbom-path: "dist/one-${{ env.VERSION }}.cdx.json"}
      - uses: actions/attest-sbom@v2
        with: {subject-name: image, subject-digest: known later, sbom-path: dist/image.cdx.json}
"""


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "one.whl").write_bytes(b"wheel")
    parts = {"bomFormat": "CycloneDX", "metadata": {"component": {"name": "fencepost", "version": "1.2"}}}
    (folder / "one-1.2.cdx.json").write_text(json.dumps(parts))
    lines = [f"{digest_of(path)}  {path.name}\n" for path in folder.iterdir()]
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def test_each_file_has_a_provenance_and_the_wheel_a_list_of_parts(dist: Path) -> None:
    assert check(WORKFLOW, dist, "1.2") == 2
    provenance, parts = statements(WORKFLOW, dist, "1.2")
    assert provenance["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {one["name"] for one in provenance["subject"]} == {"one.whl", "one-1.2.cdx.json"}
    assert parts["subject"] == [{"name": "one.whl", "digest": {"sha256": digest_of(dist / "one.whl")}}]
    assert parts["predicate"]["bomFormat"] == "CycloneDX"


def test_a_file_that_was_changed_or_added_after_the_sums_is_refused(dist: Path) -> None:
    (dist / "more").touch()
    with pytest.raises(StatementError, match="no provenance has more"):
        check(WORKFLOW, dist, "1.2")
    (dist / "one.whl").write_bytes(b"another")
    with pytest.raises(StatementError, match=r"the digest of one\.whl is"):
        check(WORKFLOW, dist, "1.2")


def test_a_list_of_parts_of_another_version_is_refused_and_so_is_a_missing_file(dist: Path) -> None:
    with pytest.raises(StatementError, match=r"one-1\.3\.cdx\.json, and there is no such file"):
        check(WORKFLOW, dist, "1.3")
    (dist / "one-1.2.cdx.json").write_text('{"bomFormat": "CycloneDX"}')
    with pytest.raises(StatementError, match="is no list in CycloneDX of the parts of fencepost"):
        check(WORKFLOW, dist, "1.2")
    with pytest.raises(StatementError, match=r"attests dist/\*\.zip, and there is no such file"):
        check(WORKFLOW.replace("*.whl", "*.zip"), dist, "1.2")


def test_the_list_of_an_images_parts_is_needed_once_there_is_an_image(dist: Path) -> None:
    (dist / "fencepost-1.2-image-x86_64.tar").touch()
    with pytest.raises(StatementError, match=r"image\.cdx\.json, and there is no such file"):
        check(WORKFLOW, dist, "1.2")
