"""The canonical form of addresses, however clients' sockets and operators write them."""

from __future__ import annotations

import pytest

from fencepost.broker.kernel.addresses import canonical_host


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::FFFF:7f00:1", "127.0.0.1"),
        ("0:0:0:0:0:ffff:127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::00AB", "2001:db8::ab"),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("FE80:0:0:0:0:0:0:1%2", "fe80::1"),
        ("::ffff:10.0.0.7%eth0", "10.0.0.7"),
        ("*", "*"),
        ("", ""),
        ("backup.example", "backup.example"),
        ("a:b", "a:b"),
        ("127.0.0.1:9092", "127.0.0.1:9092"),
        ("%", "%"),
    ],
)
def test_an_address_has_one_form(written: str, canonical: str) -> None:
    assert canonical_host(written) == canonical
    assert canonical_host(canonical) == canonical
