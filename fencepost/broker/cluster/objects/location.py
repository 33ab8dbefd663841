"""The location of a cluster's objects: the URL that an operator gives, parsed and checked before the first request.

Pure. The secrets in a URL are never part of a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

DEFAULT_REGION = "us-east-1"
"""The region that stores without regions expect; Amazon's answer names the right one if this is wrong."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()=\-]+(/[A-Za-z0-9!_.*'()=\-]+)*")
_YES_OR_NO = {"true": True, "false": False}
OPTIONS = {
    "s3": (
        "endpoint",
        "region",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "virtual_hosted_style",
        "certificate_file",
    ),
    "az": ("account", "account_key", "endpoint", "certificate_file"),
}
"""By the scheme of the URL: `s3` for every S3-compatible store, `az` for Azure Blob Storage."""
_REFUSED_SCHEMES = {
    "file": "files of one machine or of NFS are not synced as objects must be, and a cluster would lose acknowledged "
    "records with the power; give an S3-compatible server an address here, also for a trial",
    "gs": "use Google Cloud Storage through its S3 interface: s3://BUCKET?endpoint=https://storage.googleapis.com",
}


class UnusableLocationError(ValueError):
    """The URL cannot be used; the text says why, and shows nothing secret."""


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """A bucket, a prefix in it, and how to get there.

    prefix:   path without "/" at its ends; may be empty.
    endpoint: URL of the server; None for Amazon's.
    The keys are None if the environment has them (AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_KEY and others), or the
    machine's role. scheme: one of OPTIONS. account: of Azure; a bucket is a container there.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    is_virtual_hosted: bool | None = None
    certificate_file: str | None = None
    scheme: str = "s3"
    account: str | None = None
    account_key: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The location as operators write it, without keys."""
        shown = f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")
        return shown if self.endpoint is None else f"{shown}?endpoint={self.endpoint}"


def read_location(url: str) -> ObjectLocation:
    """Read `s3://BUCKET[/PREFIX][?OPTION=VALUE&…]`, or `az://CONTAINER…`. Raises UnusableLocationError.

    Options: endpoint, region, access_key_id, secret_access_key, session_token, virtual_hosted_style (true or false),
    certificate_file (PEM, of a server whose certificate no public authority has signed). Of Azure: account,
    account_key, endpoint, certificate_file.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UnusableLocationError("the URL of the objects cannot be read; write s3://BUCKET/PREFIX") from error
    if parts.scheme not in OPTIONS:
        why = _REFUSED_SCHEMES.get(parts.scheme, "write s3://BUCKET/PREFIX, with ?endpoint=URL for another server")
        raise UnusableLocationError(f"objects cannot be kept in {parts.scheme or 'a place without scheme'}://: {why}")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise UnusableLocationError(
            "the URL of the objects has keys or a port where the bucket belongs; write "
            "s3://BUCKET/PREFIX?endpoint=https://HOST:PORT, and keys into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise UnusableLocationError(
            f"{parts.netloc!r} is not the name of a bucket: 3 to 63 lower-case letters, digits, '-' and '.'"
        )
    if parts.fragment:
        raise UnusableLocationError("the URL of the objects has a '#'; a prefix cannot")
    prefix = unquote(parts.path).strip("/")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise UnusableLocationError(f"the prefix {prefix!r} has characters that not every S3 server and tool takes")
    options = _options(parts.query, OPTIONS[parts.scheme])
    if options.get("account_key") and not options.get("account"):
        raise UnusableLocationError("account_key is given with account")
    if (options.get("access_key_id") is None) != (options.get("secret_access_key") is None):
        raise UnusableLocationError("access_key_id and secret_access_key are given together, or neither")
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise UnusableLocationError("the endpoint of the objects must begin with https:// or http://")
    hosted = options.get("virtual_hosted_style")
    if hosted is not None and hosted not in _YES_OR_NO:
        raise UnusableLocationError("virtual_hosted_style is true or false")
    return ObjectLocation(
        parts.netloc,
        prefix,
        endpoint=None if endpoint is None else endpoint.rstrip("/"),
        region=options.get("region"),
        access_key_id=options.get("access_key_id"),
        secret_access_key=options.get("secret_access_key"),
        session_token=options.get("session_token"),
        is_virtual_hosted=None if hosted is None else _YES_OR_NO[hosted],
        certificate_file=options.get("certificate_file"),
        scheme=parts.scheme,
        account=options.get("account"),
        account_key=options.get("account_key"),
    )


def _options(query: str, known: tuple[str, ...]) -> dict[str, str]:
    # A "+" in a secret is itself, not a blank.
    options = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UnusableLocationError(f"unknown options of the objects: {', '.join(unknown)}; known: {', '.join(known)}")
    empty = [name for name, value in options.items() if not value]
    if empty:
        raise UnusableLocationError(f"options of the objects without a value: {', '.join(empty)}")
    return options
