"""The image of a release as an OCI archive, which any registry takes as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from scripts.releasing.conditions import ROOT

ENGINE, BASE = "FENCEPOST_IMAGE_ENGINE", "FENCEPOST_IMAGE_BASE"


class ImageError(Exception):
    """No image can be built here."""


def engine() -> str:
    """docker, buildah or none: that of the variable, or the first that is here. Raises ImageError."""
    chosen = os.environ.get(ENGINE)
    if chosen is not None:
        if chosen not in ("docker", "buildah", "none"):
            raise ImageError(f"{ENGINE} is {chosen!r}: docker, buildah or none")
        if chosen != "none" and shutil.which(chosen) is None:
            raise ImageError(f"{ENGINE} is {chosen}, which is not installed")
        return chosen
    if shutil.which("docker") is not None:
        shown = ["docker", "buildx", "inspect"]
        if subprocess.run(shown, capture_output=True, check=False).returncode == 0:
            return "docker"
    return "buildah" if shutil.which("buildah") is not None else "none"


def build(name: str, archive: Path) -> None:
    """Write the archive. Raises ImageError.

    Of Buildah's the health check is missing: it writes none into the OCI format.
    """
    try:
        _build(name, archive)
    except subprocess.CalledProcessError:
        raise ImageError(f"{engine()} has built no image, and says why above; {ENGINE}=none leaves it out") from None


def _build(name: str, archive: Path) -> None:
    base = os.environ.get(BASE)
    options = ["--file", "docker/Dockerfile", *([f"--build-arg=PYTHON={base}"] if base else [])]
    if engine() == "docker":
        # Nothing but the image: attestations are the workflow's.
        output = ("--provenance=false", "--sbom=false", "--output", f"type=oci,dest={archive}")
        subprocess.run(["docker", "buildx", "build", *options, "--tag", name, *output, "."], cwd=ROOT, check=True)
        return
    local = f"localhost/{name}"
    made = ("--isolation=chroot", "--format=oci", "--quiet", *options)
    subprocess.run(["buildah", "build", *made, "--tag", local, "."], cwd=ROOT, check=True)
    subprocess.run(["buildah", "push", "--quiet", local, f"oci-archive:{archive}"], check=True)
    subprocess.run(["buildah", "rmi", local], check=True, capture_output=True)
