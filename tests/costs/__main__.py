"""Prints what requests cost, beside the baseline; with `--write` it becomes the baseline."""

from __future__ import annotations

import sys

from tests.costs import baseline


def main() -> int:
    counts = baseline.measure_all()
    known = baseline.read().get(baseline.VERSION, {})
    for name, one in counts.items():
        before = known.get(name, {})
        parts = [f"{kind} {now:,} (before {before.get(kind, '-')})" for kind, now in vars(one).items()]
        sys.stdout.write(f"{name}: {', '.join(parts)}\n")
    if "--write" in sys.argv[1:]:
        baseline.write(counts)
        sys.stdout.write(f"{baseline.PATH} is written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
