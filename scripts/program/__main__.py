"""`python -m scripts.program WHEEL OUTPUT [--sbom FILE]`: builds the one-file program for this kind of machine."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from scripts.program.archive import pack
from scripts.program.parts import add_to_sbom, newest_c_library
from scripts.program.tree import files_of, make_tree, shared_libraries

HERE = Path(__file__).parent
LOCK = HERE.parents[1] / "requirements" / "program.lock"


def main() -> None:
    """Entry point. A C compiler and the static libraries of libc and zstd are needed."""
    parser = argparse.ArgumentParser(prog="program", description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--sbom", type=Path, help="a list of parts that gets Python and the shared libraries, too")
    parser.add_argument("--level", type=int, default=19, help="of the compression; less is faster")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        launcher, root = Path(folder, "launcher"), Path(folder, "tree")
        compiled = ("cc", "-O2", "-static", "-s", "-o", launcher, HERE / "launcher.c", "-lzstd")
        subprocess.run(compiled, check=True)
        make_tree(options.wheel, LOCK, root)
        options.output.write_bytes(pack(launcher.read_bytes(), files_of(root), level=options.level))
        options.output.chmod(0o755)
        if options.sbom is not None:
            add_to_sbom(options.sbom, shared_libraries(root))
        version = newest_c_library(files_of(root).values())
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.1f} MB, needs glibc {version} or newer")


if __name__ == "__main__":
    main()
