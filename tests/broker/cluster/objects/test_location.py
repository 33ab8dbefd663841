"""What a URL of objects means, and why one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.cluster.objects.location import ObjectLocation, UnusableLocationError, read_location


def test_a_bucket_alone_is_amazons_with_what_the_environment_has() -> None:
    assert read_location("s3://logs") == ObjectLocation("logs")


def test_the_prefix_has_no_slash_at_its_ends() -> None:
    assert read_location("s3://logs/a/b/").prefix == "a/b"
    assert read_location("s3://logs/").prefix == ""


def test_options_name_the_server_and_the_keys() -> None:
    location = read_location(
        "s3://logs/p?endpoint=https://minio:9000/&region=eu-west-1&access_key_id=K&secret_access_key=S%2Bx/+&session_token=T"
        "&virtual_hosted_style=false&certificate_file=/etc/ca.pem"
    )
    assert location == ObjectLocation(
        "logs",
        "p",
        endpoint="https://minio:9000",
        region="eu-west-1",
        access_key_id="K",
        secret_access_key="S+x/+",
        session_token="T",
        is_virtual_hosted=False,
        certificate_file="/etc/ca.pem",
    )


def test_azure_has_containers_of_an_account() -> None:
    location = read_location("az://logs/p?account=mine&account_key=HUSH==")
    assert location == ObjectLocation("logs", "p", scheme="az", account="mine", account_key="HUSH==")
    assert str(location) == "az://logs/p"
    assert "HUSH" not in repr(location)


def test_keys_are_shown_nowhere() -> None:
    location = read_location(
        "s3://logs/p?endpoint=http://h:1&access_key_id=KEY&secret_access_key=SECRET&session_token=TOKEN"
    )
    for shown in (str(location), repr(location)):
        assert not any(secret in shown for secret in ("KEY", "SECRET", "TOKEN"))
    assert str(location) == "s3://logs/p?endpoint=http://h:1"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///tmp/x", "not synced"),
        ("gs://logs", "storage.googleapis.com"),
        ("az://logs?region=x", "known: account, account_key, endpoint, certificate_file"),
        ("az://logs?account_key=HUSH", "given with account"),
        ("logs", "write s3://BUCKET/PREFIX"),
        ("http://localhost:9000/logs", "endpoint=URL"),
        ("s3://KEY:HUSH@logs", "AWS_ACCESS_KEY_ID"),
        ("s3://localhost:9000/logs", "endpoint="),
        ("s3://UPPER", "not the name of a bucket"),
        ("s3://ab", "not the name of a bucket"),
        ("s3://", "not the name of a bucket"),
        ("s3://logs/a b", "characters"),
        ("s3://logs/a//b", "characters"),
        ("s3://logs/p#x", "#"),
        ("s3://logs?regoin=x", "unknown options of the objects: regoin"),
        ("s3://logs?region=", "without a value: region"),
        ("s3://logs?access_key_id=KEY", "together"),
        ("s3://logs?endpoint=minio:9000", "https://"),
        ("s3://logs?virtual_hosted_style=yes", "true or false"),
        ("s3://[x", "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(url: str, why: str) -> None:
    with pytest.raises(UnusableLocationError) as refused:
        read_location(url)
    assert why in str(refused.value)
    assert "HUSH" not in str(refused.value)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for url in (text, f"s3://{text}", f"s3://logs?{text}"):
        try:
            read_location(url)
        except UnusableLocationError:
            continue
