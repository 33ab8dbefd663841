"""PostgreSQL over TLS, with a certificate of an authority of one's own: verified, or refused in a sentence."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from fencepost.broker.cluster.postgres.connections import UnavailableError, connect, parse_address
from fencepost.broker.cluster.postgres.schema import prepare
from tests.support.certificates import Authority, CertificateFiles
from tests.support.postgres_over_tcp import postgres_over_tcp


def serving(certificate: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.load_into(context)
    return context


def _plain(cluster_url: str) -> str:
    """Without the schema, which is no parameter of PostgreSQL's own clients."""
    return cluster_url.partition("&search_path=")[0]


def url_at(port: int, cluster_url: str, options: str) -> str:
    schema = parse_qs(urlsplit(cluster_url).query)["search_path"][0]
    return f"postgresql://postgres@127.0.0.1:{port}/postgres?search_path={schema}&{options}"


def verifying(authority: Authority) -> str:
    return f"sslmode=verify-full&sslrootcert={authority.path}"


async def test_a_certificate_of_an_authority_of_ones_own_is_verified(cluster_url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with postgres_over_tcp(_plain(cluster_url), context=serving(authority.server())) as port:
        address = parse_address(url_at(port.port, cluster_url, verifying(authority)))
        connection = await connect(address, application_name="test")
        assert connection._transport.get_extra_info("ssl_object").version().startswith("TLS")
        await prepare(connection, address)
        await connection.close()


REASONS = {
    "name": "IP address mismatch",
    "authority": "unable to get local issuer",
    "time": "certificate has expired",
}


@pytest.mark.parametrize("fault", REASONS)
async def test_a_certificate_that_does_not_hold_is_refused_in_a_sentence(
    fault: str, cluster_url: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificates = {
        "name": authority.server("elsewhere", names=("db.example",)),
        "authority": Authority(tmp_path, "stranger").server("strange"),
        "time": authority.expired_server(),
    }
    with postgres_over_tcp(_plain(cluster_url), context=serving(certificates[fault])) as port:
        address = parse_address(url_at(port.port, cluster_url, verifying(authority)))
        with pytest.raises(UnavailableError, match=r"has a certificate that is refused: .*\. Name the host") as refused:
            await connect(address, application_name="test")
    assert REASONS[fault] in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_without_verification_any_certificate_does(cluster_url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with postgres_over_tcp(_plain(cluster_url), context=serving(authority.expired_server())) as port:
        address = parse_address(url_at(port.port, cluster_url, "sslmode=require"))
        connection = await connect(address, application_name="test")
        await connection.close()
