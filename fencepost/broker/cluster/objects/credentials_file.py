"""Keys of the object store in a shared credentials file, as Amazon's tools have one: a change needs no restart."""

from __future__ import annotations

import configparser
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from obstore.store import S3Credential

VARIABLE: Final = "AWS_SHARED_CREDENTIALS_FILE"
READ_AGAIN_AFTER: Final = timedelta(seconds=10)
"""Keys that are replaced in the file are used this much later."""


class CredentialsFile:
    """The keys of one profile of a file, for obstore."""

    def __init__(self, path: Path, profile: str) -> None:
        """Raises ValueError if there are no keys."""
        self.path = path
        self.profile = profile
        self()

    def __call__(self) -> S3Credential:
        """Read the file. Raises ValueError, without a key in its text."""
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(self.path.read_text(encoding="utf-8"))
            section = parser[self.profile]
            return {
                "access_key_id": section["aws_access_key_id"],
                "secret_access_key": section["aws_secret_access_key"],
                "token": section.get("aws_session_token"),
                "expires_at": datetime.now(UTC) + READ_AGAIN_AFTER,
            }
        except (OSError, UnicodeDecodeError, configparser.Error, KeyError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it lacks aws_access_key_id or another line"
            raise ValueError(f"{VARIABLE} ({self.path}), profile {self.profile}: {reason}") from None


def credentials_file() -> CredentialsFile | None:
    """The file that the environment names; None if it names none, or has keys itself. Raises ValueError."""
    path = os.environ.get(VARIABLE)
    if not path or os.environ.get("AWS_ACCESS_KEY_ID"):
        return None
    return CredentialsFile(Path(path), os.environ.get("AWS_PROFILE") or "default")
