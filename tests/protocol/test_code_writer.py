"""Functions that are written line by line."""

from __future__ import annotations

import traceback

import pytest

from fencepost.protocol.code_writer import CodeWriter, literal


def test_lines_become_a_function_that_knows_its_constants() -> None:
    writer = CodeWriter("def double(value):", "double")
    name = writer.constant("factor", object)
    writer.add("if value:")
    writer.indent()
    writer.add(f"return {name}, value * 2")
    writer.dedent()
    writer.add("return None")
    double = writer.compile("double")
    assert double(21) == (object, 42)
    assert double(0) is None


def test_a_failure_shows_the_line_that_was_written() -> None:
    writer = CodeWriter("def fail():", "fails")
    writer.add("return 1 // 0")
    with pytest.raises(ZeroDivisionError) as failure:
        writer.compile("fail")()
    assert "return 1 // 0" in "".join(traceback.format_exception(failure.value))


@pytest.mark.parametrize(
    ("value", "text"), [(None, "None"), (True, "True"), (-7, "-7"), ("a'b", '"a\'b"'), (b"", "b''")]
)
def test_plain_values_are_written_into_the_code(value: object, text: str) -> None:
    assert literal(value) == text


def test_other_values_are_no_literals() -> None:
    assert literal(object()) is None
