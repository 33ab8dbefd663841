"""The text of `sasl.jaas.config`, as Java's login modules are configured: `Module required name="value" …;`. Pure.

Source: Java's `javax.security.auth.login.Configuration`; Kafka's JaasConfig and JaasContext.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_USER_PREFIX: Final = "user_"

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<quoted>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<word>[^\s"';=/]+(?:/[^\s"';=/*]+)*)
    | (?P<sign>[;=])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasError(ValueError):
    """The text cannot be read. The message names the place and no value: values are passwords."""


class LoginModule(NamedTuple):
    """One login module and its options."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, options: {', '.join(self.options)})"


def read_login_module(text: str) -> LoginModule:
    """Read the one login module of a text. Raises JaasError."""
    tokens = _tokens(text)
    if not tokens:
        raise JaasError("it is empty; expected a login module, such as " + _EXAMPLE)
    if tokens[-1] != ("sign", ";"):
        raise JaasError("it has to end with a semicolon")
    if tokens.count(("sign", ";")) > 1:
        raise JaasError("it has more than one login module, or a semicolon within one")
    (_, name), *rest = tokens[:-1] or [("sign", "")]
    if not rest or rest[0][1].lower() not in _FLAGS:
        raise JaasError(f"behind the login module there has to be one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    parts = rest[1:]
    for position in range(0, len(parts), 3):
        found = parts[position : position + 3]
        kinds = [kind for kind, _ in found]
        if len(found) < 3 or kinds[0] == "sign" or kinds[2] == "sign" or found[1] != ("sign", "="):
            after = f" behind {parts[position - 3][1]!r}" if position else ""
            raise JaasError(f'expected option="value"{after}; values with special characters stand in double quotes')
        options[found[0][1]] = found[2][1]
    return LoginModule(name, options)


_EXAMPLE: Final = f'`{PLAIN_MODULE} required user_alice="…";`'


def plain_users(text: str) -> dict[str, str]:
    """The passwords of the users in a text for PLAIN: the options `user_NAME="password"`. Raises JaasError."""
    module = read_login_module(text)
    if module.name != PLAIN_MODULE:
        raise JaasError(f"its login module is {module.name}, not PLAIN's; expected {_EXAMPLE}")
    return {
        option.removeprefix(_USER_PREFIX): password
        for option, password in module.options.items()
        if option.startswith(_USER_PREFIX) and option != _USER_PREFIX
    }


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = list[tuple[str, str]](), 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError(f"it cannot be read from character {position + 1} on: is a quotation mark missing?")
        position = found.end()
        kind = found.lastgroup
        if kind == "quoted":
            tokens.append((kind, _unquoted(found[0])))
        elif kind is not None:
            tokens.append((kind, found[0]))
    return tokens


def _unquoted(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted[1:-1], flags=re.DOTALL)
