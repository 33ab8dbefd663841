"""Texts of `sasl.jaas.config`, as Kafka's documentation and its users write them."""

from __future__ import annotations

import pytest

from fencepost.broker.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasError, plain_users, read_login_module


@pytest.mark.parametrize(
    ("text", "users"),
    [
        (f'{PLAIN_MODULE} required username="admin" password="x" user_admin="x" user_alice="y z";', ["x", "y z"]),
        (f"{PLAIN_MODULE} required user_admin=x user_alice='y z' ;", ["x", "y z"]),
        (f'{PLAIN_MODULE} required\n  user_admin="x"\n  user_alice="y z";\n', ["x", "y z"]),
        (f'// users\n{PLAIN_MODULE} Required /* the\n first */ user_admin = "x" user_alice="y z";', ["x", "y z"]),
        (rf'{PLAIN_MODULE} optional user_admin="a\"b\\c;=" user_alice="\t";', ['a"b\\c;=', "\t"]),
        (f'{PLAIN_MODULE} required user_admin="a//b" user_alice="ü";', ["a//b", "ü"]),
    ],
)
def test_the_users_of_plain_are_read(text: str, users: list[str]) -> None:
    assert plain_users(text) == dict(zip(["admin", "alice"], users, strict=True))


def test_the_brokers_own_name_is_no_user() -> None:
    assert plain_users(f'{PLAIN_MODULE} required username="admin" password="x";') == {}


def test_options_of_other_modules_are_read() -> None:
    module = read_login_module(f'{SCRAM_MODULE} required username="broker" password="secret";')
    assert module.name == SCRAM_MODULE
    assert module.options == {"username": "broker", "password": "secret"}
    assert "secret" not in repr(module)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        (";", "behind the login module"),
        ("secret;", "behind the login module"),
        (f'{PLAIN_MODULE} required user_a="secret"', "end with a semicolon"),
        (f'{PLAIN_MODULE} user_a="secret";', "behind the login module"),
        (f'{PLAIN_MODULE} required user_a="secret;', "quotation mark"),
        (f"{PLAIN_MODULE} required user_a;", "expected option="),
        (f'{PLAIN_MODULE} required user_a "secret";', "expected option="),
        (f'{PLAIN_MODULE} required ="secret";', "expected option="),
        (f'{PLAIN_MODULE} required user_a="x" secret;', "behind 'user_a'"),
        (f'{PLAIN_MODULE} required user_a="secret"; {PLAIN_MODULE} required;', "more than one"),
        (f'{SCRAM_MODULE} required user_a="secret";', "not PLAIN's"),
    ],
)
def test_what_is_wrong_is_said_without_the_passwords(text: str, problem: str) -> None:
    with pytest.raises(JaasError, match=problem) as raised:
        plain_users(text)
    assert "secret" not in str(raised.value)
