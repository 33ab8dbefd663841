"""Writer of generated Python source: lines with their subjects, compiled into one function that tracebacks show."""

import linecache
from struct import Struct
from types import FunctionType
from typing import Any, NamedTuple

from fencepost.protocol.primitives import BOOL


class CodePosition(NamedTuple):
    """Subject of a generated line, and its position in the buffer: `offset` bytes after the value of a variable."""

    about: str
    variable: str
    offset: int


class CodeWriter:
    """Lines of one function under construction.

    Each line records the part of the message that it reads or writes, so that an exception anywhere in the function
    identifies the part, without bookkeeping at run time.

    variable, offset: position in the buffer of the lines that are added next.
    """

    def __init__(self, header: str, name: str) -> None:
        self.name = name
        self.variable, self.offset = "position", 0
        self.positions = [CodePosition("the beginning", "position", 0)] * 2  # line numbers count from 1
        self.namespace: dict[str, Any] = {}
        self._lines = [header]
        self._indentation = 1

    def add(self, line: str, about: str = "") -> None:
        self._lines.append("    " * self._indentation + line)
        self.positions.append(CodePosition(about or self.positions[-1].about, self.variable, self.offset))

    def indent(self) -> None:
        self._indentation += 1

    def dedent(self) -> None:
        self._indentation -= 1

    def constant(self, prefix: str, value: Any) -> str:
        """Bind a value in the function's globals and return its name; equal formats share one `Struct`."""
        for name, bound in self.namespace.items():
            if bound is value and name.startswith(prefix):
                return name
        name = f"{prefix}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def packed(self, codes: str, method: str) -> str:
        """The name of `Struct(codes).method`."""
        name = f"{method}_{codes.replace(BOOL.code, 't')}"
        self.namespace.setdefault(name, getattr(Struct(">" + codes), method))
        return name

    def compile(self, function_name: str) -> FunctionType:
        text = "\n".join(self._lines) + "\n"
        filename = f"<{self.name}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.namespace)
        function = self.namespace[function_name]
        assert isinstance(function, FunctionType)
        return function


def literal(value: Any) -> str | None:
    """The source text of a default; None if it is not a plain constant."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if value == []:
        return "[]"
    return None
