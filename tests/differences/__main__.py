"""Asks Fencepost and Apache Kafka 4.4 the same things and shows where their replies deviate, field by field.

    python -m tests.differences                              both are started, all themes are asked
    python -m tests.differences produce configs              only these themes
    python -m tests.differences --recorded                   Kafka's side from tests/frames/answers: no JVM
    python -m tests.differences --record                     renews these recordings; Fencepost is not asked
    python -m tests.differences --fencepost HOST:PORT --kafka HOST:PORT
    python -m tests.differences --seeds 1-100 [THEME ...]    sequences made up from seeds; one seed shows them whole
    python -m tests.differences --secured [...]              the themes of brokers with SASL PLAIN and ACLs

Ends with 1 when something deviates that docs/differences-from-kafka.md does not declare.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ApacheKafka
from tests.differences.comparison import (
    Answers,
    Deviation,
    answers_of,
    compare,
    described,
    load,
    save,
    story,
    until_first,
)
from tests.differences.connection import Login
from tests.differences.declared import undeclared
from tests.differences.exchange import Exchange
from tests.differences.fencepost import SETTINGS, running_fencepost
from tests.differences.random_sequences import GENERATED, recording_name
from tests.differences.random_sequences import sequence as generated_sequence
from tests.differences.secured import SECURED, SECURED_GENERATED
from tests.differences.secured.sides import ADMIN, PROTOCOL, SECURED_FENCEPOST, SECURED_KAFKA
from tests.differences.sequences import SEQUENCES

Address = tuple[str, int]


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


class Comparison(NamedTuple):
    """Something to ask both, under the name that its recording has.

    token:              see `Exchange`.
    depends_on_answers: whether what is asked next depends on what was answered: then only the first deviation counts.
    login:              of the sequence's own connection, where the brokers are secured.
    """

    name: str
    sequence: Callable[[Exchange], None]
    token: str | None = None
    depends_on_answers: bool = False
    login: Login | None = None


def secured_comparisons(themes: Sequence[str], seeds: Sequence[int]) -> list[Comparison]:
    """As `comparisons`, of secured brokers."""
    if not seeds:
        return [Comparison(f"secured/{theme}", SECURED[theme], login=ADMIN) for theme in themes or SECURED]

    def generated(theme: str, seed: int) -> Callable[[Exchange], None]:
        return lambda exchange: SECURED_GENERATED[theme](exchange, Random(f"{theme} {seed}"))

    return [
        Comparison(
            f"secured/{theme}-{seed}",
            generated(theme, seed),
            depends_on_answers=True,
            login=ADMIN,
        )
        for theme in themes or SECURED_GENERATED
        for seed in seeds
    ]


def comparisons(themes: Sequence[str], seeds: Sequence[int]) -> list[Comparison]:
    """Without seeds the sequences that were thought out; with them, generated ones."""
    if not seeds:
        return [Comparison(theme, SEQUENCES[theme]) for theme in themes or SEQUENCES]
    return [
        Comparison(
            recording_name(theme, seed), generated_sequence(theme, seed), f"{theme}-{seed}", depends_on_answers=True
        )
        for theme in themes or GENERATED
        for seed in seeds
    ]


def seeds_in(text: str) -> range:
    """`7`, or `1-100`. Raises ArgumentTypeError."""
    first, _, last = text.partition("-")
    try:
        seeds = range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a seed nor the first and the last of some, as in 1-100")
    return seeds


def asked(broker: Address, comparison: Comparison) -> Answers:
    host, port = broker
    return answers_of(host, port, comparison.sequence, token=comparison.token, login=comparison.login)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    themes_help = (
        f"of {', '.join(SEQUENCES)}; with --seeds of {', '.join(GENERATED)}; with --secured of {', '.join(SECURED)}; "
        f"with both of {', '.join(SECURED_GENERATED)}; all when none is named"
    )
    parser.add_argument("themes", nargs="*", metavar="THEME", help=themes_help)
    parser.add_argument("--seeds", type=seeds_in, default=(), metavar="FIRST-LAST", help="ask what these seeds make up")
    parser.add_argument("--secured", action="store_true", help="ask brokers with authentication and ACLs")
    parser.add_argument("--fencepost", type=address, metavar="HOST:PORT", help="a running Fencepost, started fresh")
    parser.add_argument("--kafka", type=address, metavar="HOST:PORT", help="a running Apache Kafka 4.4, started fresh")
    parser.add_argument("--recorded", action="store_true", help="take Kafka's answers from the recordings")
    parser.add_argument("--record", action="store_true", help="ask Kafka only and renew the recordings")
    parser.add_argument("--all", action="store_true", help="show declared differences, too")
    options = parser.parse_args(arguments)
    if options.secured:
        known: Container[str] = SECURED_GENERATED if options.seeds else SECURED
    else:
        known = GENERATED if options.seeds else SEQUENCES
    unknown = [theme for theme in options.themes if theme not in known]
    if unknown:
        parser.error(f"no such theme: {', '.join(unknown)}")
    running = (secured_comparisons if options.secured else comparisons)(options.themes, options.seeds)
    with contextlib.ExitStack() as stack:
        kafka: Address | None = None
        if not options.recorded:
            kafka = options.kafka or _started_kafka(stack, is_secured=options.secured)
        if options.record:
            assert kafka is not None
            for comparison in running:
                print(f"wrote {save(comparison.name, asked(kafka, comparison))}")
            return 0
        fencepost = options.fencepost or stack.enter_context(
            running_fencepost(PROTOCOL, SECURED_FENCEPOST) if options.secured else running_fencepost()
        )
        deviations: list[Deviation] = []
        for comparison in running:
            expected = load(comparison.name) if kafka is None else asked(kafka, comparison)
            found = asked(fencepost, comparison)
            deviating = compare(comparison.name, expected, found)
            if comparison.depends_on_answers:
                left = until_first(undeclared(deviating))
                deviating = [*left, *(one for one in deviating if not undeclared([one]))]
                if len(running) == 1:
                    print(story(expected, left), end="")
            deviations += deviating
            count = len(undeclared(deviating))
            print(f"{comparison.name}: {len(expected.given)} answers, {count} undeclared deviations", file=sys.stderr)
    left = undeclared(deviations)
    print(described(deviations if options.all else left))
    print(f"{len(left)} undeclared and {len(deviations) - len(left)} declared deviations", file=sys.stderr)
    return 1 if left else 0


def _started_kafka(stack: contextlib.ExitStack, *, is_secured: bool) -> Address:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-kafka-"))
    port = free_port()
    kafka = ApacheKafka(Path(folder), port, properties=SETTINGS)
    if is_secured:
        kafka = ApacheKafka(Path(folder), port, properties={**SETTINGS, **SECURED_KAFKA}, protocol=PROTOCOL)
    stack.enter_context(kafka)
    return "127.0.0.1", port


if __name__ == "__main__":
    # SIGTERM unwinds like Ctrl-C, so that the brokers started here are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
