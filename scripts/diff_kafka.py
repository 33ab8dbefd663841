"""Asks Fencepost and Apache Kafka 4.3 the same things and shows where their replies deviate, field by field.

    scripts/diff_kafka.py                              both are started, all themes are asked
    scripts/diff_kafka.py produce configs              only these themes
    scripts/diff_kafka.py --recorded                   Kafka's side from tests/frames/answers: no JVM
    scripts/diff_kafka.py --record                     renews these recordings; Fencepost is not asked
    scripts/diff_kafka.py --fencepost HOST:PORT --kafka HOST:PORT

Ends with 1 when something deviates that docs/differences-from-kafka.md does not declare.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.apache_kafka import ApacheKafka
from scripts.diffing.comparison import Answers, Deviation, answers_of, compare, described, load, save
from scripts.diffing.declared import undeclared
from scripts.diffing.fencepost import SETTINGS, running_fencepost
from scripts.diffing.sequences import SEQUENCES
from scripts.free_port import free_port

Address = tuple[str, int]


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


def asked(broker: Address, theme: str) -> Answers:
    host, port = broker
    return answers_of(host, port, SEQUENCES[theme])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("themes", nargs="*", metavar="THEME", help=f"of {', '.join(SEQUENCES)}; all when none is named")
    parser.add_argument("--fencepost", type=address, metavar="HOST:PORT", help="a running Fencepost, started fresh")
    parser.add_argument("--kafka", type=address, metavar="HOST:PORT", help="a running Apache Kafka 4.3, started fresh")
    parser.add_argument("--recorded", action="store_true", help="take Kafka's answers from the recordings")
    parser.add_argument("--record", action="store_true", help="ask Kafka only and renew the recordings")
    parser.add_argument("--all", action="store_true", help="show declared differences, too")
    options = parser.parse_args(arguments)
    unknown = [theme for theme in options.themes if theme not in SEQUENCES]
    if unknown:
        parser.error(f"no such theme: {', '.join(unknown)}")
    themes = options.themes or list(SEQUENCES)
    with contextlib.ExitStack() as stack:
        kafka: Address | None = None
        if not options.recorded:
            kafka = options.kafka or _started_kafka(stack)
        if options.record:
            assert kafka is not None
            for theme in themes:
                print(f"wrote {save(theme, asked(kafka, theme))}")
            return 0
        fencepost = options.fencepost or stack.enter_context(running_fencepost())
        deviations: list[Deviation] = []
        for theme in themes:
            expected: Answers = load(theme) if kafka is None else asked(kafka, theme)
            found = asked(fencepost, theme)
            deviations += compare(theme, expected, found)
            print(f"{theme}: {len(expected.given)} answers", file=sys.stderr)
    left = undeclared(deviations)
    print(described(deviations if options.all else left))
    print(f"{len(left)} undeclared and {len(deviations) - len(left)} declared deviations", file=sys.stderr)
    return 1 if left else 0


def _started_kafka(stack: contextlib.ExitStack) -> Address:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-kafka-"))
    port = free_port()
    stack.enter_context(ApacheKafka(Path(folder), port, properties=SETTINGS))
    return "127.0.0.1", port


if __name__ == "__main__":
    sys.exit(main())
