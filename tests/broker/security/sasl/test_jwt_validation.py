"""Validation of tokens: each algorithm, each claim, and the known ways to get a forged one accepted."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from fencepost.broker.security.sasl.claims import Expected, validate_unsecured
from fencepost.broker.security.sasl.jwt_validation import KeysError, keys_for, read_head, read_keys, validate
from fencepost.broker.security.sasl.oauthbearer import Bearer, InvalidToken

NOW_S = 1_800_000_000
RSA = rsa.generate_private_key(65_537, 2048)
OTHER_RSA = rsa.generate_private_key(65_537, 2048)
P256, P384, P521 = (ec.generate_private_key(curve) for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()))
ED25519 = ed25519.Ed25519PrivateKey.generate()
CLAIMS = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}


def jwk(key: Any, key_id: str | None, **more: Any) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        text = RSAAlgorithm.to_jwk(key.public_key())
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        text = ECAlgorithm.to_jwk(key.public_key())
    else:
        text = OKPAlgorithm.to_jwk(key.public_key())
    return {**json.loads(text), **({} if key_id is None else {"kid": key_id}), **more}


KEYS = read_keys(
    {
        "keys": [
            jwk(RSA, "rsa"),
            jwk(P256, "p256"),
            jwk(P384, "p384"),
            jwk(P521, "p521"),
            jwk(ED25519, "ed", alg="EdDSA"),
            jwk(OTHER_RSA, "rs512-only", alg="RS512"),
        ]
    }
)


def signed(
    claims: Mapping[str, Any] | None = None,
    *,
    key: Any = RSA,
    algorithm: str = "RS256",
    key_id: str | None = "rsa",
    **more: Any,
) -> str:
    headers = {**({} if key_id is None else {"kid": key_id}), **more}
    return jwt.encode({**CLAIMS, **(claims or {})}, key, algorithm=algorithm, headers=headers)


def validated(token: str, expected: Expected | None = None, now_s: float = NOW_S) -> Bearer | InvalidToken:
    head = read_head(token)
    if isinstance(head, InvalidToken):
        return head
    return validate(token, head, keys_for(head, KEYS), expected or Expected(), int(now_s * 1000))


@pytest.mark.parametrize(
    ("algorithm", "key", "key_id"),
    [
        *((name, RSA, "rsa") for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        ("ES256", P256, "p256"),
        ("ES384", P384, "p384"),
        ("ES512", P521, "p521"),
        ("EdDSA", ED25519, "ed"),
        ("RS512", OTHER_RSA, "rs512-only"),
        ("ES256", P256, None),
        ("RS256", RSA, None),
    ],
)
def test_tokens_of_all_algorithms_with_key_pairs_are_accepted(algorithm: str, key: Any, key_id: str | None) -> None:
    assert validated(signed(key=key, algorithm=algorithm, key_id=key_id)) == Bearer("alice", (NOW_S + 60) * 1000)


# Forged tokens. Source: RFC 8725, section 2.


def encoded(part: Any) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", None])
@pytest.mark.parametrize("signature", ["", encoded(b"x")])
def test_unsigned_tokens_are_refused(name: str | None, signature: str) -> None:
    assert isinstance(validated(f"{encoded({'alg': name, 'kid': 'rsa'})}.{encoded(CLAIMS)}.{signature}"), InvalidToken)


@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(form: str) -> None:
    public = RSA.public_key()
    secrets = {
        "pem": public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        "der": public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(jwk(RSA, "rsa")).encode(),
    }
    content = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(CLAIMS)}"
    token = f"{content}.{encoded(hmac.digest(secrets[form], content.encode(), hashlib.sha256))}"
    assert validated(token) == InvalidToken("a token whose algorithm is none of RS, PS, ES and EdDSA")


def test_a_symmetric_key_of_the_issuer_is_never_used() -> None:
    with pytest.raises(KeysError, match="no key"):
        read_keys({"keys": [{"kty": "oct", "k": encoded(b"secret"), "alg": "HS256", "kid": "x"}]})


def test_a_token_signed_by_another_key_is_refused() -> None:
    assert validated(signed(key=OTHER_RSA)) == InvalidToken("a token whose signature is wrong")


def test_a_key_that_the_token_brings_along_is_not_used() -> None:
    token = signed(
        key=OTHER_RSA, jwk=jwk(OTHER_RSA, "rsa"), jku="https://evil.example/keys", x5u="https://evil.example"
    )
    assert validated(token) == InvalidToken("a token whose signature is wrong")


@pytest.mark.parametrize("key_id", ["unknown", "../rsa", "", "rsa' OR 1"])
def test_a_token_of_an_unknown_key_is_refused(key_id: str) -> None:
    assert isinstance(validated(signed(key_id=key_id)), InvalidToken)


def test_a_key_verifies_only_the_algorithms_that_it_is_for() -> None:
    assert isinstance(validated(signed(key=OTHER_RSA, algorithm="RS256", key_id="rs512-only")), InvalidToken)
    assert isinstance(validated(signed(key=OTHER_RSA, algorithm="PS512", key_id="rs512-only")), InvalidToken)


def test_a_changed_token_is_refused() -> None:
    head, claims, signature = signed().split(".")
    assert isinstance(validated(f"{head}.{encoded({**CLAIMS, 'sub': 'admin'})}.{signature}"), InvalidToken)
    assert isinstance(validated(f"{head}.{claims}.{signature[:-4]}AAAA"), InvalidToken)
    assert isinstance(validated(f"{head}.{claims}."), InvalidToken)


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "..", "e30.e30.e30", "é.é.é", "." * 100])
def test_what_is_no_token_is_refused(token: str) -> None:
    assert isinstance(validated(token), InvalidToken)


def test_a_critical_extension_is_refused() -> None:
    assert isinstance(validated(signed(crit=["exp"])), InvalidToken)


# Claims


@pytest.mark.parametrize(("now_s", "is_valid"), [(NOW_S + 89.9, True), (NOW_S + 90, False), (NOW_S + 1000, False)])
def test_a_token_expires_with_the_skew_of_clocks(now_s: float, is_valid: bool) -> None:
    assert isinstance(validated(signed(), now_s=now_s), Bearer) is is_valid


@pytest.mark.parametrize(("not_before_s", "is_valid"), [(NOW_S + 30, True), (NOW_S + 31, False)])
@pytest.mark.parametrize("name", ["nbf", "iat"])
def test_a_token_of_the_future_is_refused(name: str, not_before_s: int, is_valid: bool) -> None:
    assert isinstance(validated(signed({name: not_before_s})), Bearer) is is_valid


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": -1},
        {"exp": 1e300},
        {"iat": None},
        {"iat": "x"},
        {"nbf": "x"},
        {"sub": None},
        {"sub": ""},
        {"sub": " "},
        {"sub": 7},
        {"sub": ["alice"]},
    ],
    ids=str,
)
def test_claims_of_another_form_are_refused(claims: dict[str, Any]) -> None:
    every = {**CLAIMS, **claims}
    content = f"{encoded({'alg': 'RS256', 'kid': 'rsa'})}.{encoded(every)}"
    signature = RSAAlgorithm(RSAAlgorithm.SHA256).sign(content.encode(), RSA)
    assert isinstance(validated(f"{content}.{encoded(signature)}"), InvalidToken)


@pytest.mark.parametrize(
    ("audience", "is_valid"),
    [("kafka", True), (["other", "kafka"], True), ("other", False), ([], False), (None, False), ({"kafka": 1}, False)],
)
def test_an_audience_that_is_expected_has_to_be_there(audience: Any, is_valid: bool) -> None:
    content = f"{encoded({'alg': 'RS256', 'kid': 'rsa'})}.{encoded({**CLAIMS, 'aud': audience})}"
    token = f"{content}.{encoded(RSAAlgorithm(RSAAlgorithm.SHA256).sign(content.encode(), RSA))}"
    assert isinstance(validated(token, Expected(audiences=["kafka", "more"])), Bearer) is is_valid


@pytest.mark.parametrize(("issuer", "is_valid"), [("https://a", True), ("https://a/", False), (None, False)])
def test_an_issuer_that_is_expected_has_to_be_there(issuer: str | None, is_valid: bool) -> None:
    claims = {} if issuer is None else {"iss": issuer}
    assert isinstance(validated(signed(claims), Expected(issuer="https://a")), Bearer) is is_valid


def test_the_name_may_be_in_another_claim() -> None:
    assert validated(signed({"email": "a@b"}), Expected(name_claim="email")) == Bearer("a@b", (NOW_S + 60) * 1000)


# Key sets


def test_keys_that_cannot_verify_signatures_are_skipped() -> None:
    small = rsa.generate_private_key(65_537, 1024)
    keys = read_keys(
        {
            "keys": [
                jwk(RSA, "encryption", use="enc"),
                jwk(RSA, "signing", key_ops=["sign"]),
                jwk(RSA, "oaep", alg="RSA-OAEP"),
                jwk(small, "small"),
                {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
                {"kty": "RSA", "n": "!", "e": "AQAB"},
                {"kty": "RSA"},
                "no key",
                jwk(RSA, "right", use="sig", key_ops=["verify"]),
            ]
        }
    )
    assert [key.key_id for key in keys] == ["right"]


def test_a_private_key_in_the_set_verifies_as_its_public_one() -> None:
    private = {**json.loads(RSAAlgorithm.to_jwk(RSA)), "kid": "rsa"}
    (key,) = read_keys({"keys": [{name: value for name, value in private.items() if name != "key_ops"}]})
    token = signed()
    head = read_head(token)
    assert not isinstance(head, InvalidToken)
    assert isinstance(validate(token, head, [key], Expected(), NOW_S * 1000), Bearer)


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, {"keys": []}, "keys"])
def test_what_is_no_key_set_is_refused(document: Any) -> None:
    with pytest.raises(KeysError):
        read_keys(document)


# Tokens that nobody has signed, where they are allowed


ANY_JSON: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**30, 1e400),
    *("", "x", "\ud800", "x" * 20_000),
    *([], ["RS256"], [[]], [None] * 100, {}, {"RS256": 1}),
]


def json_part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("name", ["alg", "kid", "typ", "crit", "b64", "jwk", "x5c", "cty", "zip"])
def test_a_head_with_any_json_value_is_a_token_or_a_refusal(name: str) -> None:
    for value in ANY_JSON:
        head = {"alg": "RS256", "kid": "rsa", name: value}
        for claims in (CLAIMS, ANY_JSON):
            found = validated(f"{json_part(head)}.{json_part(claims)}.e30")
            assert isinstance(found, InvalidToken), value


@pytest.mark.parametrize("name", ["sub", "iat", "exp", "nbf", "aud", "iss", "jti", "scope"])
@pytest.mark.parametrize("expected", [Expected(), Expected(["me"], "issuer")], ids=["anybody", "one audience"])
def test_a_claim_of_any_json_value_is_a_name_that_can_be_sent_or_a_refusal(name: str, expected: Expected) -> None:
    for value in ANY_JSON:
        claims = {"aud": "me", "iss": "issuer", **CLAIMS, name: value}
        unsecured = f"{json_part({'alg': 'none'})}.{json_part(claims)}."
        for found in (
            validated(jwt.encode(claims, RSA, algorithm="RS256", headers={"kid": "rsa"}), expected)
            if name != "iss" or isinstance(value, str)  # the library signs no others
            else InvalidToken(""),
            validate_unsecured(unsecured, expected, NOW_S * 1000),
        ):
            if isinstance(found, Bearer):
                assert found.name.encode()


@pytest.mark.parametrize("whole", ANY_JSON, ids=lambda value: str(value)[:10].encode("unicode_escape").decode())
def test_a_head_and_claims_that_are_no_objects_are_refused(whole: Any) -> None:
    head, claims = json_part(whole), json_part({**CLAIMS})
    for token in (f"{head}.{claims}.e30", f"{json_part({'alg': 'RS256'})}.{head}.e30", f"{head}.{head}."):
        assert isinstance(validated(token), InvalidToken)
        assert isinstance(validate_unsecured(token, Expected(), NOW_S * 1000), InvalidToken)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_that_is_nested_deeply_is_refused(opening: str) -> None:
    deep = base64.urlsafe_b64encode(opening.encode() * 6_000).rstrip(b"=").decode()
    for token in (f"{deep}.{deep}.e30", f"{json_part({'alg': 'RS256', 'kid': 'rsa'})}.{deep}.e30"):
        assert isinstance(validated(token), InvalidToken)
        assert isinstance(validate_unsecured(token, Expected(), NOW_S * 1000), InvalidToken)


@pytest.mark.parametrize("name", ["use", "key_ops", "kty", "crv", "alg", "kid", "n", "e"])
def test_a_key_with_any_json_value_is_used_or_skipped(name: str) -> None:
    good = jwk(P256, "p256")
    for value in ANY_JSON:
        keys = read_keys({"keys": [jwk(RSA, "rsa", **{name: value}), value, good]})
        assert keys[-1].key_id == "p256"
