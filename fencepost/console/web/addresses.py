"""Addresses of pages in a console with several clusters. Pure.

Pages and changes write addresses as if there were one cluster: `/topics/orders`. On their way out they get the cluster
of the request in front, `/c/prod/topics/orders`, so that no page can forget it.
"""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "/c"
_OF_NO_CLUSTER: Final = r"(?:static/|theme\b|log-out\b|clusters\b|oidc/|c/)"
_LINK: Final = re.compile(rf' (href|action|formaction|data-address)="/(?!/|{_OF_NO_CLUSTER})')
_ADDRESS: Final = re.compile(rf"/(?!/|\\|{_OF_NO_CLUSTER})")


def is_local(address: str) -> bool:
    """Whether an address leads to a page of this site: `//host` and `/\\host` are addresses elsewhere."""
    return address.startswith("/") and address[1:2] not in ("/", "\\") and address.isprintable()


def base_of(cluster: str) -> str:
    """The beginning of a cluster's addresses."""
    return f"{PREFIX}/{cluster}"


def with_base(address: str, base: str) -> str:
    """An address of a page, in the cluster of `base`; those of no cluster, and of other sites, stay."""
    return base + address if base and _ADDRESS.match(address) else address


def links_with_base(html: str, base: str) -> str:
    """A page whose links lead into the cluster of `base`. Quotation marks of names and of texts are escaped in it, so
    that only the links of templates match.
    """
    return _LINK.sub(rf' \1="{base}/', html) if base else html
