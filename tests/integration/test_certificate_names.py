"""Names in certificates and the rules for them, compared with Java's X500Principal and Kafka's SslPrincipalMapper."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fencepost.broker.security.distinguished_name import name_text
from fencepost.broker.security.principal_mapping import PrincipalMapping
from fencepost.soak.kafka_jars import kafka_clients_class_path

PROGRAM = Path(__file__).parent / "java" / "CertificateNames.java"
OIDS = {
    "CN": "550403",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "serialNumber": "550405",
    "title": "55040c",
    "givenName": "55042a",
    "UID": "0992268993f22c640101",
    "DC": "0992268993f22c640119",
    "emailAddress": "2a864886f70d010901",
    "of one's own": "2b0601040182b53a0107",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString, NumericString
TAGS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "latin-1",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
    0x12: "ascii",
}
TEXTS = (
    "alice",
    "Müller & Söhne",
    "a,b+c=d",
    '"quoted" \\ <x>;#',
    "#begins",
    " begins and ends ",
    "  ",
    "",
    "null\0inside",
    "line\nend\r",
    "日本語",
    "𝄞 clef",
    "tab\tinside",
    "a/b$1",
    "\r x \r",
)


def element(tag: int, content: bytes) -> bytes:
    length = len(content)
    head = bytes([length]) if length < 0x80 else bytes([0x82, length >> 8, length & 0xFF])
    return bytes([tag]) + head + content


def attribute(oid: str, tag: int, text: str) -> bytes:
    value = element(tag, text.encode(TAGS[tag], errors="replace"))
    return element(0x30, element(0x06, bytes.fromhex(oid)) + value)


def name(*parts: Sequence[bytes]) -> bytes:
    return element(0x30, b"".join(element(0x31, b"".join(sorted(part))) for part in parts))


def made_up_names(seed: int, count: int) -> list[bytes]:
    chance = random.Random(seed)

    def made_up() -> bytes:
        oid, tag = chance.choice(list(OIDS.values())), chance.choice(list(TAGS))
        alphabet = "aB0 ,=+<>#;\"\\\r\n\té\0€𝄞/$'()-.:?"
        random_text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(12)))
        return attribute(oid, tag, chance.choice([chance.choice(TEXTS), random_text]))

    return [
        name(*([made_up() for _ in range(chance.choice([1, 1, 1, 2, 3]))] for _ in range(chance.randrange(1, 6))))
        for _ in range(count)
    ]


Ask = Callable[[Sequence[str]], list[str | None]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    folder = tmp_path_factory.mktemp("java")

    def ask(questions: Sequence[str]) -> list[str | None]:
        path = folder / "questions"
        path.write_text("\n".join(questions))
        command = ["java", "--class-path", kafka_clients_class_path(), str(PROGRAM), str(path)]
        answers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        assert len(answers) == len(questions)
        return [None if answer == "-" else base64.b64decode(answer).decode() for answer in answers]

    return ask


def test_the_text_of_a_name_is_that_of_java(ask: Ask) -> None:
    names = [name([attribute(oid, tag, text)]) for oid in OIDS.values() for tag in TAGS for text in TEXTS]
    names += made_up_names(seed=17, count=3_000)
    names.append(name([element(0x30, element(0x06, bytes.fromhex("550403")) + element(0x02, b"\5"))]))
    answers = ask([f"name {der.hex()}" for der in names])
    assert [name_text(der) for der in names] == answers


RULES = (
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT",
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U , RULE:CN=(.*)/$2$1$0/L",
    "RULE:.*/x/",
    "RULE:CN=(.*?)/$1/",
    "RULE:^CN=([^,]+)(,.*)?$/\\$1-\\/-$1/, DEFAULT",
    "RULE:^CN=(a|b)*,O=.*$/[$1]/",
    "RULE:^CN=(\\w+)\\\\,.*$/$1/",
    "RULE:^OU=[^,]*$/none/L,RULE:^CN=.*$/one/U",
)
SUBJECTS = (
    "CN=Alice",
    "CN=kafka1,OU=ServiceUsers,O=Example,L=Berlin,ST=B,C=DE",
    "cn=bob,ou=dev,dc=example,dc=com",
    "CN=abab,O=x",
    "CN=weird\\,O=x",
    "OU=only",
    "1.2.840.113549.1.9.1=#1603612e62,CN=mail",
    "CN=Ünï,O=ß",
    "",
)


def test_the_rules_make_the_names_that_kafkas_make(ask: Ask) -> None:
    cases = [(rules, subject) for rules in RULES for subject in SUBJECTS]
    answers = ask(
        [
            "rule " + " ".join(base64.b64encode(text.encode()).decode() for text in (rules, subject))
            for rules, subject in cases
        ]
    )
    assert [PrincipalMapping(rules).name_of(subject) for rules, subject in cases] == answers
