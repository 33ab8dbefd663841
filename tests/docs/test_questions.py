"""What readers ask: the page with the answer is at most two clicks away from docs/index.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.code_blocks import DOCS, ROOT
from tests.docs.test_links import links, prose

MOST_CLICKS = 2
QUESTIONS = {
    "How do I install it?": ("docs/first-steps.md", "pip install fencepost"),
    "How do I connect from my language?": ("docs/clients/java.md", "bootstrap.servers"),
    "Where do I see lag?": ("docs/faq.md", "fencepost groups describe GROUP"),
    "How do I back up, while it runs?": ("docs/backup.md", "kill -STOP"),
    "What if a whole machine is lost?": ("docs/cluster.md", "loses nothing that was acknowledged"),
    "How do I restore a cluster?": ("docs/cluster.md", "needed after every restore of PostgreSQL"),
    "What if the disk is full?": ("docs/operations.md", "Free space on a full disk"),
    "Why does my consumer get nothing?": ("docs/troubleshooting.md", "last stable offset below the high watermark"),
    "How do I end a stuck transaction?": ("docs/troubleshooting.md", "fencepost transactions abort ID"),
    "Who ends a transaction whose service is gone?": ("docs/check-back.md", "asks the service's own records"),
    "Is there a web console?": ("docs/console.md", "fencepost console --bootstrap"),
    "How do I run it in Kubernetes?": ("docs/kubernetes.md", "readinessProbe"),
    "How do I make systemd wait until it serves?": ("docs/systemd.md", "Type=notify"),
    "How much memory does it need?": ("docs/capacity.md", "each …"),
    "Is it faster than Kafka, and where not?": ("docs/performance.md", "Kafka is faster"),
    "Which replication factor may a topic have?": ("docs/faq.md", "INVALID_REPLICATION_FACTOR"),
    "How do I come from Apache Kafka?": ("docs/moving-from-kafka.md", "MirrorMaker 2"),
    "Can I go back to the version before?": ("docs/upgrade.md", "Downgrade"),
    "Does it run on Windows, on macOS, on Python 3.14?": ("docs/faq.md", "On Python 3.14?"),
    "How do I secure it?": ("docs/security.md", "Five minutes"),
    "Why can my client not log in?": ("docs/troubleshooting.md", "it refused the log-in"),
    "Which settings are there?": ("docs/configuration.md", "num.partitions"),
    "Which requests does it serve?": ("docs/protocol-support.md", "InitProducerId"),
    "What does a committed transaction promise?": ("docs/transactions.md", "What is guaranteed"),
    "How do I add a setting?": ("docs/architecture.md", "How to add a setting"),
    "Which tests do I run?": ("CONTRIBUTING.md", "Which test command when"),
    "How do I report a hole?": ("SECURITY.md", "Report a hole"),
}
"""The question, the page that answers it, and words of the answer."""


def reached(clicks: int) -> set[Path]:
    """The pages that this number of clicks leads to, at most."""
    pages = {DOCS / "index.md"}
    for _ in range(clicks):
        pages |= {target for page in pages if page.suffix == ".md" for target, _ in links(page) if target.is_file()}
    return pages


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_within_two_clicks(question: str) -> None:
    name, words = QUESTIONS[question]
    page = ROOT / name
    assert page in reached(MOST_CLICKS)
    text = page.read_text(encoding="utf-8")
    assert words in " ".join(text.replace("**", "").split()) or words in " ".join(prose(page).split())


def test_the_index_is_one_click_from_the_readme() -> None:
    assert DOCS / "index.md" in {target for target, _ in links(ROOT / "README.md")}
