"""The sources that can be asked: a service over HTTP, a PostgreSQL database, or a record of a compacted topic.

A resolver never guesses. COMMIT and ABORT are what a source has said in exactly the agreed form; UNKNOWN is what it
has said in that form, too. Everything else is no answer and raises ResolverUnreachable, with one sentence that says
what was wrong and what to do.
"""

from __future__ import annotations

from fencepost.check_back.question import RecordReader, Resolver
from fencepost.check_back.settings import ResolverSettings


def resolver_for(settings: ResolverSettings, records: RecordReader) -> Resolver:
    """Make the resolver of some settings; only the libraries of its type are imported.

    records: for `record`. Raises ValueError, as `resolver_settings`, for options that only its type can check, and
    for a library that is not installed.
    """
    if settings.type == "http":
        from fencepost.check_back.resolvers.http import HttpResolver

        return HttpResolver(settings)
    if settings.type == "sql":
        from fencepost.check_back.resolvers.sql import SqlResolver

        return SqlResolver(settings)
    if settings.type == "record":
        from fencepost.check_back.resolvers.record import RecordResolver

        return RecordResolver(settings, records)
    raise ValueError(f"resolver {settings.name}: type: expected http, sql or record; got {settings.type!r}")
