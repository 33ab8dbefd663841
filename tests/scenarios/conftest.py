"""Every transcript in these folders is a test; `--rewrite-expected` writes into it what really happens."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.runner.performance import perform_transcript
from tests.scenarios.runner.transcript import TranscriptError, parse_transcript


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".txt":
        return TranscriptFile.from_parent(parent, path=file_path)
    return None


class TranscriptFile(pytest.File):
    """Its own file for each scenario."""

    def collect(self) -> Iterable[pytest.Item]:
        yield TranscriptItem.from_parent(self, name=self.path.stem)


class OtherThanWritten(Exception):  # noqa: N818  # a finding
    """Something else came of a step than the transcript says, or something happened that never may."""


class TranscriptItem(pytest.Item):
    """One scenario, performed and compared."""

    def runtest(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        performance = perform_transcript(parse_transcript(text))
        if performance.findings:
            raise OtherThanWritten("\n".join(performance.findings))
        actual = performance.text
        if actual == text:
            return
        if self.config.getoption("--rewrite-expected"):
            self.path.write_text(actual, encoding="utf-8")
            return
        raise OtherThanWritten("- was written, + happened\n" + "".join(_difference(text, actual)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, OtherThanWritten):
            return f"{self.path}\n{excinfo.value}"
        if isinstance(excinfo.value, TranscriptError):
            return f"{self.path}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")


def _difference(text: str, actual: str) -> Iterable[str]:
    lines = difflib.ndiff(text.splitlines(keepends=True), actual.splitlines(keepends=True))
    return (line for line in lines if not line.startswith("? "))
