"""Every loop over messages of confluent-kafka raises on `message.error()`: in the pages, the examples and our programs.

A fatal error of a consumer is reported once, as a message; a loop that leaves it out polls for ever.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.docs.code_blocks import ROOT, blocks, pages

FOLDERS = ("docs", "scripts", "fencepost/soak", "tests/examples")
POLLS = ("poll", "consume")
ENDS = ("exit", "_exit", "fail")


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of each program that uses confluent-kafka's Consumer; the blocks of a page are one program."""
    for page in pages():
        program = "\n".join(block.text for block in blocks(page.read_text("utf-8")) if block.language == "python")
        yield page.relative_to(ROOT).as_posix(), program
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
    for path in sorted((ROOT / "scripts").iterdir()):
        if path.is_file() and path.suffix == "":
            text = path.read_text("utf-8")
            if text.startswith("#!") and "python" in text.partition("\n")[0]:
                yield path.relative_to(ROOT).as_posix(), text


def last_name(node: ast.AST) -> str:
    """`_consumer` of `self._consumer`, and `consumers` of `consumers[1]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def names_in(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr


class Program:
    """A program, and the lines at which it drops errors."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.uses_confluent_kafka = "confluent_kafka" in text and "Consumer" in text
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.consumers = {
            last_name(target)
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and self._makes(node.value)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        }
        self.functions = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}

    def _makes(self, value: ast.expr) -> bool:
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        return any(name.endswith("Consumer") for call in calls for name in names_in(call.func))

    def _is_poll(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in POLLS:
            return False
        name = last_name(node.func.value)
        return name in self.consumers or "consumer" in name.lower()

    def _up(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def _errors(self, scope: ast.AST) -> set[str]:
        """Variables that hold a message's error."""
        return {
            name
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and self._asks(node.value, set())
            for target in node.targets
            for name in names_in(target)
        }

    @staticmethod
    def _asks(node: ast.AST, errors: set[str]) -> bool:
        """Whether an expression asks for a message's error."""
        return any(
            (isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "error")
            or (isinstance(each, ast.Name) and each.id in errors)
            for each in ast.walk(node)
        )

    def _raises_on_error(self, scope: ast.AST) -> bool:
        errors = self._errors(scope)
        for node in ast.walk(scope):
            if isinstance(node, ast.Assert) and self._asks(node.test, errors):
                return True
            if isinstance(node, ast.If) and self._asks(node.test, errors) and self._ends(node):
                return True
        return False

    @staticmethod
    def _ends(node: ast.AST) -> bool:
        return any(
            isinstance(each, ast.Raise) or (isinstance(each, ast.Call) and any(n in ENDS for n in names_in(each.func)))
            for each in ast.walk(node)
        )

    def dropped(self) -> list[int]:
        """Lines of polls whose messages' errors raise nothing, and of conditions that leave errors out."""
        if not self.uses_confluent_kafka:
            return []
        lines = set()
        for node in ast.walk(self.tree):
            if self._is_poll(node) and not self._is_checked(node):
                lines.add(node.lineno)  # type: ignore[attr-defined]
            if isinstance(node, ast.comprehension | ast.GeneratorExp | ast.ListComp) and self._asks(node, set()):
                lines.add(getattr(node, "lineno", 0) or node.target.lineno)  # type: ignore[union-attr]
            is_inner = any(isinstance(up, ast.If) and self._asks(up.test, set()) for up in self._up(node))
            if isinstance(node, ast.If) and not is_inner and self._asks(node.test, set()) and not self._ends(node):
                lines.add(node.lineno)
        return sorted(lines)

    def _is_checked(self, poll: ast.AST) -> bool:
        """Whether the function around a poll raises on errors, or one that gets its result."""
        scope: ast.AST = self.tree
        for node in self._up(poll):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
                return self._raises_on_error(self.functions[node.func.id])
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                scope = node
                break
        return self._raises_on_error(scope)


def test_no_program_drops_an_error_of_its_consumer() -> None:
    found = {name: lines for name, text in sources() if (lines := Program(text).dropped())}
    assert not found, f"raise KafkaException(message.error()) there: {found}"


def test_the_programs_that_are_looked_at_are_there() -> None:
    names = [name for name, text in sources() if Program(text).uses_confluent_kafka]
    for name in ("docs/testing.md", "docs/examples/confluent_kafka/billing.py"):
        assert name in names
    assert "scripts/pipeline/flights_application.py" in names


SETUP = "from confluent_kafka import Consumer, KafkaException\nreader = Consumer({})\n"


@pytest.mark.parametrize(
    "loop",
    [
        "while True:\n    m = reader.poll(1)\n    print(m.value())",
        "while True:\n    m = reader.poll(1)\n    if m is None or m.error():\n        continue\n    print(m.value())",
        "while True:\n    m = reader.poll(1)\n    if m and not m.error():\n        print(m.value())",
        "while True:\n    m = reader.poll(1)\n    if m.error():\n        print(m.error())\n        continue",
        "for m in reader.consume(10, 1):\n    print(m.value())",
        "batch = [m for m in reader.consume(10, 1) if m.error() is None]",
        "count = sum(m.error() is None for m in reader.consume(10, 1))",
        "def handle(m):\n    print(m.value())\nhandle(reader.poll(1))",
        "def run(consumer):\n    m = consumer.poll(1)\n    return m.value()",
    ],
)
def test_a_loop_that_drops_errors_is_found(loop: str) -> None:
    assert Program(SETUP + loop).dropped() != []


@pytest.mark.parametrize(
    "loop",
    [
        "m = reader.poll(1)\nif m is not None and m.error():\n    raise KafkaException(m.error())",
        "for m in reader.consume(10):\n    e = m.error()\n    if e is not None:\n        raise KafkaException(e)",
        "for m in reader.consume(10, 1):\n    assert m.error() is None",
        "def value(m):\n    if m.error():\n        raise KafkaException(m.error())\nprint(value(reader.poll(1)))",
        "process.poll()",
    ],
)
def test_a_loop_that_raises_is_not(loop: str) -> None:
    assert Program(SETUP + loop).dropped() == []
