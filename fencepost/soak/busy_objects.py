"""The object store of a soak: the trial's, which can be made to refuse requests as a busy S3 does, or not to answer.

    python -m fencepost.soak.busy_objects DIRECTORY --host HOST --port PORT

Each request reads the current trouble from a file beside the directory; without the file all are served.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple


class Trouble(NamedTuple):
    """refused: share of requests that get 503 SlowDown. unanswered: share that get no answer until the client has given
    up; half of them are carried out. silent_s: how long their connections stay open."""

    refused: float
    unanswered: float
    silent_s: float = 15.0


NO_TROUBLE = Trouble(0.0, 0.0)


def set_trouble(directory: Path, trouble: Trouble) -> None:
    """Set the trouble of requests from now on. directory: the one of `trial_objects`."""
    written = directory / "trouble.written"
    written.write_text(json.dumps(trouble))
    os.replace(written, _place(directory))


def _place(directory: Path) -> Path:
    return directory / "trouble.json"


def trouble_of(directory: Path) -> Trouble:
    """Return the current trouble of requests."""
    with contextlib.suppress(FileNotFoundError):
        return Trouble(*json.loads(_place(directory).read_text()))
    return NO_TROUBLE


def main() -> None:
    # Only the process that serves needs it; the soak of one broker does without.
    import localbucket

    class Handler(localbucket.S3Handler):  # type: ignore[misc]
        def _dispatch(self, action: Callable[[str, str], None]) -> None:
            trouble = trouble_of(self.data_root.parent)
            drawn = random.random()
            if drawn < trouble.refused:
                self._read_body()
                self._send_error(
                    localbucket.S3Error(HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate.")
                )
            elif drawn < trouble.refused + trouble.unanswered:
                self.wfile: Any = io.BytesIO()
                self.close_connection = True
                if drawn < trouble.refused + trouble.unanswered / 2:
                    super()._dispatch(action)
                else:
                    self._read_body()
                time.sleep(trouble.silent_s)
            else:
                super()._dispatch(action)

    localbucket.S3Handler = Handler
    localbucket.main()


if __name__ == "__main__":
    main()
