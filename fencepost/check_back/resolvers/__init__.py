"""The sources that can be asked: a service over HTTP, a PostgreSQL database, or a record of a compacted topic.

A resolver never guesses. COMMIT, ABORT and UNKNOWN are answers of a source in exactly the agreed form. Everything else
is no answer and raises ResolverUnreachable, with one sentence that has the error and the remedy.
"""

from __future__ import annotations

from fencepost.check_back.question import RecordReader, Resolver
from fencepost.check_back.settings import ResolverSettings


def resolver_for(settings: ResolverSettings, records: RecordReader) -> Resolver:
    """Make the resolver of some settings; only the libraries of its type are imported.

    records: reader for the type `record`. Raises ValueError, as `resolver_settings`, for options that only its type
    can check, and for a library that is not installed.
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
