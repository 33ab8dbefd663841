"""`python -m scripts.releasing DIST`: builds all files of a release into an empty folder, and tries them.

Runs with the tools of `requirements/release.lock` in its environment and on PATH, and SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.releasing import image, locks, statements, trial
from scripts.releasing.conditions import ROOT, notes_for, version_of

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def python(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)


def say(sentence: str) -> None:
    print(f"release: {sentence}", flush=True)


def repository() -> str | None:
    """The address of the repository whose workflow this is; None elsewhere."""
    name = os.environ.get("GITHUB_REPOSITORY")
    return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}" if name else None


def packages(dist: Path) -> Path:
    """Build the source archive and a wheel of it; returns the wheel, which is that of the checkout, byte by byte."""
    python("-m", "build", "--no-isolation", "--outdir", dist, ".")
    (wheel,) = dist.glob("*.whl")
    with tempfile.TemporaryDirectory() as place:
        python("-m", "build", "--no-isolation", "--wheel", "--outdir", place, ".")
        if Path(place, wheel.name).read_bytes() != wheel.read_bytes():
            raise SystemExit("release: the source archive makes another wheel than the checkout")
    say("the source archive makes the same wheel as the checkout")
    python("-m", "twine", "check", "--strict", wheel, *dist.glob("fencepost-*.tar.gz"))
    say("a package index takes the metadata of wheel and source archive")
    return wheel


def list_parts(lock: str, output: Path) -> None:
    options = ("--pyproject", "pyproject.toml", "--output-reproducible", "--output-file", output)
    subprocess.run(["cyclonedx-py", "requirements", f"requirements/{lock}.lock", *options], cwd=ROOT, check=True)


def program(wheel: Path, path: Path) -> None:
    parts = path.with_name(f"{path.name}.cdx.json")
    list_parts("program", parts)
    level = os.environ.get("FENCEPOST_LEVEL", "19")
    python("-m", "scripts.program", wheel, path, "--sbom", parts, "--level", level)


def with_image(dist: Path, version: str) -> None:
    if image.engine() == "none":
        say("there is no image: docker buildx and buildah are missing, or FENCEPOST_IMAGE_ENGINE is none")
        return
    archive = dist / f"fencepost-{version}-image-{platform.machine()}.tar"
    image.build(f"fencepost:{version}", archive)
    list_parts("broker-image", archive.with_suffix(".cdx.json"))
    say(f"the image was built with {image.engine()}: {archive.stat().st_size / 1e6:.1f} MB")


def try_all(dist: Path, version: str, wheel: Path) -> None:
    """Each in an environment that has nothing of this one."""
    with tempfile.TemporaryDirectory() as place:
        bare = {"PATH": "/nowhere", "XDG_CACHE_HOME": place, "HOME": place}
        command = trial.install(wheel, Path(place, "environment"))
        trial.attempt(command, version, bare)
        say("the wheel serves in an empty environment")
        for path in dist.glob("fencepost-*-linux-*"):
            if path.suffix != ".json":
                trial.attempt(path, version, bare)
                say("the program in one file serves")


def steps(dist: Path) -> None:
    version = version_of(ROOT)
    image.engine()  # refuses before minutes of work
    if faults := locks.faults(ROOT):
        raise SystemExit("\n".join(f"release: {fault}" for fault in faults))
    say("the lock files fit pyproject.toml")
    wheel = packages(dist)
    list_parts("serve", dist / f"fencepost-{version}.cdx.json")
    if platform.system() == "Linux":
        program(wheel, dist / f"fencepost-{version}-linux-{platform.machine()}")
    with_image(dist, version)
    notes = notes_for((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version, repository())
    (dist / "NOTES.md").write_text(f"{notes}\n", encoding="utf-8")
    digests = "".join(f"{statements.digest_of(path)}  {path.name}\n" for path in sorted(dist.iterdir()))
    (dist / "SHA256SUMS").write_text(digests, encoding="utf-8")
    print(digests, end="")
    count = statements.check(WORKFLOW.read_text(encoding="utf-8"), dist, version)
    say(f"the workflow will attest these {count} files, and the lists of parts; nothing is signed here")
    try_all(dist, version, wheel)


def main() -> None:
    dist = Path(sys.argv[1]).resolve()
    dist.mkdir(parents=True, exist_ok=True)
    try:
        steps(dist)
    except (trial.TrialError, statements.StatementError, image.ImageError) as error:
        raise SystemExit(f"release: {error}") from None
    except subprocess.CalledProcessError as error:
        command = shlex.join(str(word) for word in error.cmd)
        raise SystemExit(f"release: ended with {error.returncode}, and says why above: {command}") from None
    except KeyboardInterrupt:
        raise SystemExit("release: interrupted; what is in the folder is not whole") from None


if __name__ == "__main__":
    main()
