"""The attestations of `.github/workflows/release.yml`, before they are signed: subjects, digests, lists of parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

PROVENANCE, PARTS = "actions/attest-build-provenance", "actions/attest-sbom"
MOST_BYTES: Final = 16_000_000
"""Of a list of parts: a limit of the action."""


class StatementError(Exception):
    """An attestation would be refused, or would say something else than the release."""


def statements(workflow: str, folder: Path, version: str) -> list[dict[str, Any]]:
    """The in-toto statements about files that the workflow attests, as it will sign them. Raises StatementError."""
    found = []
    has_image = any(folder.glob("fencepost-*-image-*"))
    for kind, options in _attestations(workflow, version):
        if "subject-digest" in options and not has_image:
            continue
        subjects: dict[str, str] = {}
        if "subject-checksums" in options:
            subjects = sums(folder.parent / _under(folder, options["subject-checksums"]))
        elif "subject-path" in options:
            for pattern in options["subject-path"].replace(",", "\n").split():
                paths = sorted(folder.parent.glob(_under(folder, pattern)))
                if not paths:
                    raise StatementError(f"the workflow attests {pattern}, and there is no such file")
                subjects |= {path.name: digest_of(path) for path in paths}
        statement: dict[str, Any] = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()],
            "predicateType": "https://slsa.dev/provenance/v1" if kind == PROVENANCE else "https://cyclonedx.org/bom",
        }
        if kind == PARTS:
            statement["predicate"] = _parts(folder.parent / _under(folder, options["sbom-path"]), version)
        if "subject-digest" not in options:
            found.append(statement)
    return found


def check(workflow: str, folder: Path, version: str) -> int:
    """All files of a release have one provenance with their digest; returns how many. Raises StatementError."""
    made = statements(workflow, folder, version)
    files = {path.name: digest_of(path) for path in folder.iterdir() if path.name != "SHA256SUMS"}
    attested: dict[str, str] = {}
    for statement in made:
        digests = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
        for name, digest in digests.items():
            if files.get(name) != digest:
                raise StatementError(f"the digest of {name} is {files.get(name)}, and {digest} would be attested")
        if statement["predicateType"].startswith("https://slsa.dev/"):
            attested |= digests
    if missing := files.keys() - attested.keys():
        raise StatementError(f"no provenance has {', '.join(sorted(missing))}")
    return len(attested)


def sums(path: Path) -> dict[str, str]:
    """Names and digests of a file that `sha256sum` has written."""
    lines = (line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines())
    return {name.removeprefix("*"): digest for digest, name in lines}


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _attestations(workflow: str, version: str) -> list[tuple[str, Mapping[str, str]]]:
    jobs = yaml.safe_load(workflow)["jobs"].values()
    return [
        (
            step["uses"].partition("@")[0],
            {name: str(value).replace("${{ env.VERSION }}", version) for name, value in step["with"].items()},
        )
        for job in jobs
        for step in job["steps"]
        if step.get("uses", "").startswith((PROVENANCE, PARTS))
    ]


def _under(folder: Path, path: str) -> str:
    """The workflow's folder is dist; here it may have another name."""
    return f"{folder.name}/{path.removeprefix('dist/')}"


def _parts(path: Path, version: str) -> dict[str, Any]:
    if not path.is_file():
        raise StatementError(f"the workflow attests {path.name}, and there is no such file")
    if path.stat().st_size > MOST_BYTES:
        raise StatementError(f"{path.name} has more than {MOST_BYTES} bytes")
    content: dict[str, Any] = json.loads(path.read_bytes())
    about = content.get("metadata", {}).get("component", {})
    if (content.get("bomFormat"), about.get("name"), about.get("version")) != ("CycloneDX", "fencepost", version):
        raise StatementError(f"{path.name} is no list in CycloneDX of the parts of fencepost {version}")
    return content
