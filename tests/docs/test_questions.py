"""What readers ask: the page with the answer is at most two clicks away from docs/index.md."""

from __future__ import annotations

from pathlib import Path

from tests.docs.code_blocks import DOCS, ROOT
from tests.docs.test_links import links

MOST_CLICKS = 2
QUESTIONS = {
    "How do I install it?": "docs/first-steps.md",
    "How do I connect from my language?": "docs/clients/java.md",
    "Where do I see lag?": "docs/faq.md",
    "How do I back up, while it runs?": "docs/backup.md",
    "What if a whole machine is lost?": "docs/cluster.md",
    "How do I restore a cluster?": "docs/cluster.md",
    "What if the disk is full?": "docs/operations.md",
    "Why does my consumer get nothing?": "docs/troubleshooting.md",
    "How do I end a stuck transaction?": "docs/troubleshooting.md",
    "Who ends a transaction whose service is gone?": "docs/check-back.md",
    "Is there a web console?": "docs/console.md",
    "How do I run it in Kubernetes?": "docs/kubernetes.md",
    "How do I make systemd wait until it serves?": "docs/systemd.md",
    "How much memory does it need?": "docs/capacity.md",
    "Is it faster than Kafka, and where not?": "docs/performance.md",
    "Which replication factor may a topic have?": "docs/faq.md",
    "How do I come from Apache Kafka?": "docs/moving-from-kafka.md",
    "Can I go back to the version before?": "docs/upgrade.md",
    "Does it run on Windows, on macOS, on my Python?": "docs/faq.md",
    "How do I secure it?": "docs/security.md",
    "Why can my client not log in?": "docs/troubleshooting.md",
    "Which settings are there?": "docs/configuration.md",
    "Which requests does it serve?": "docs/protocol-support.md",
    "What does a committed transaction promise?": "docs/transactions.md",
    "How do I add a setting?": "docs/changing.md",
    "Which tests do I run?": "CONTRIBUTING.md",
    "How do I report a hole?": "SECURITY.md",
}
"""The question, and the page that answers it."""


def reached(clicks: int) -> set[Path]:
    """The pages that this number of clicks leads to, at most."""
    pages = {DOCS / "index.md"}
    for _ in range(clicks):
        pages |= {target for page in pages if page.suffix == ".md" for target, _ in links(page) if target.is_file()}
    return pages


def test_a_question_is_answered_within_two_clicks() -> None:
    pages = reached(MOST_CLICKS)
    assert [question for question, name in QUESTIONS.items() if ROOT / name not in pages] == []


def test_the_index_is_one_click_from_the_readme() -> None:
    assert DOCS / "index.md" in {target for target, _ in links(ROOT / "README.md")}
