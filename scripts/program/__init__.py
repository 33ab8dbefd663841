"""Builds the one-file program: Fencepost, its libraries and a Python in one file, which needs neither on the machine.

`python -m scripts.program WHEEL OUTPUT [--sbom FILE]`, as `scripts/release` calls it.
"""
