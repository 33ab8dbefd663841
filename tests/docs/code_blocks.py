"""The code blocks of a page, and the shell script that does what a reader does with them, in the order of the page.

A block whose first line is a comment with a file name, such as `# orders.py`, is a file that the reader saves. A block
of Python without a name is run as it is. A block of shell is run; a line that begins with `fencepost serve`, or with
`fencepost cluster try --nodes`, starts brokers in the background. A block of `text` that follows is what the block
before it prints; `…` stands for anything.
A comment `<!-- not run: REASON -->` before a block keeps it from being run.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"(?P<indent> *)```(?P<language>\w*)\s*")
NOT_RUN = re.compile(r"<!-- not run: (.*) -->")
FILE_NAME = re.compile(r"(?://|#|--|<!--) ?(?P<name>[\w./-]+\.\w+)( -->)?")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
RUN_LANGUAGES = ("sh", "python")
STARTS = ("fencepost serve ", "fencepost cluster try --nodes ")


@dataclass(frozen=True)
class Block:
    """A fenced block. line: of its fence, from 1. output: what it prints, if the page shows that; else None."""

    line: int
    language: str
    text: str
    not_run: str | None
    output: str | None

    @property
    def file_name(self) -> str | None:
        match = FILE_NAME.fullmatch(self.text.partition("\n")[0])
        return match["name"] if match else None


def pages() -> list[Path]:
    """README and all pages of docs."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    found: list[Block] = []
    lines = text.splitlines()
    number, reason, follows = 0, None, False
    while number < len(lines):
        fence = FENCE.fullmatch(lines[number])
        if fence is None:
            marked = NOT_RUN.fullmatch(lines[number].strip())
            reason = marked[1] if marked else reason if not lines[number].strip() else None
            follows = follows and not lines[number].strip()
            number += 1
            continue
        end = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == "```")
        content = "".join(f"{line.removeprefix(fence['indent'])}\n" for line in lines[number + 1 : end])
        if fence["language"] == "text" and follows and found[-1].language in RUN_LANGUAGES:
            last = found.pop()
            found.append(Block(last.line, last.language, last.text, last.not_run, content))
        else:
            found.append(Block(number + 1, fence["language"], content, reason, None))
        number, reason, follows = end + 1, None, True
    return found


PRELUDE = r"""
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
start_broker() {
    "$@" >>broker.out 2>>broker.log &
    BROKER_PID=$!
    export BROKER_PID
    fencepost ping --wait-seconds 30 >/dev/null
}
"""


def script(page_blocks: list[Block]) -> str:
    """What a reader does with the blocks; the output of block N goes to a file `output-N`."""
    parts = [PRELUDE]
    for number, block in enumerate(page_blocks):
        if block.not_run is not None:
            continue
        name = block.file_name
        if name is None and block.language == "python":
            name = f"block_{number}.py"
            parts += [_save(name, block.text), f"python {name} >output-{number}\n"]
        elif name is not None and block.language != "sh":
            parts.append(_save(name, block.text))
        elif block.language == "sh":
            lines = [
                f"start_broker {line}" if line.startswith(STARTS) or line == "fencepost serve" else line
                for line in block.text.replace("./scripts/fencepost ", "fencepost ").splitlines()
            ]
            parts += ["{\n", *(f"{line}\n" for line in lines), f"}} >output-{number}\n"]
    return "".join(parts)


def _save(name: str, text: str) -> str:
    folder = shlex.quote(str(Path(name).parent))
    return f"mkdir -p {folder}\ncat >{shlex.quote(name)} <<'END-OF-BLOCK'\n{text}END-OF-BLOCK\n"


def prints(expected: str, printed: str) -> bool:
    """Whether an output is what a page shows: `…` stands for anything; colours and spaces at ends do not count."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in COLOUR.sub("", text).strip().splitlines())

    pattern = ".*".join(re.escape(part) for part in tidy(expected).split("…"))
    return re.fullmatch(pattern, tidy(printed), re.DOTALL) is not None
