"""kcat at a secured broker. It says on standard error what it is refused, and why it does not connect."""

from __future__ import annotations

import copy
import signal
from dataclasses import replace

from tests.compat.kcat.tool import Outcome, Running, kcat, numbers
from tests.compat.python_checks import Check
from tests.compat.secured_checks import ADMIN, PLAIN, Login


def options(login: Login) -> list[str]:
    """The settings of a login, as NAME=VALUE of librdkafka."""
    chosen = [f"security.protocol={login.protocol}"]
    if login.has_tls:
        chosen.append(f"ssl.ca.location={login.authority_file}")
    if login.certificate:
        chosen.append(f"ssl.certificate.location={login.file(f'{login.certificate}.crt')}")
        chosen.append(f"ssl.key.location={login.file(f'{login.certificate}.key')}")
    if login.mechanism:
        chosen += [f"sasl.mechanism={login.mechanism}", f"sasl.username={login.user}"]
        chosen.append(f"sasl.password={login.password}")
    return chosen


def run(check: Check, login: Login, *arguments: str, records: str = "") -> Outcome:
    return kcat(at(check, login), *arguments, records=records, config=options(login))


def at(check: Check, login: Login) -> Check:
    """The check with the address of the login's listener."""
    other = copy.copy(check)
    other.bootstrap = login.bootstrap
    return other


def write(check: Check, login: Login, topic: str, *values: str) -> Outcome:
    return run(check, login, "-P", "-t", topic, "-p", "0", records="".join(f"{value}\n" for value in values))


def read(check: Check, login: Login, topic: str) -> Outcome:
    return run(check, login, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")


def cannot_connect(check: Check, what: str, login: Login, *words: str) -> None:
    """It shows no metadata, and says why: on a busy machine perhaps not within a second, but within more."""
    for limit_s in (1, 5, 30):
        outcome = run(check, login, "-L", "-m", str(limit_s))
        if all(word in outcome.errors for word in words):
            break
    if outcome.code == -signal.SIGSEGV:
        # kcat ends while threads of librdkafka still use what OpenSSL frees at the end of a process.
        outcome = replace(outcome, code=1)
    refused(check, what, outcome, "Failed to acquire metadata", *words)


def refused(check: Check, what: str, outcome: Outcome, *words: str) -> None:
    """It ended badly, wrote no record, and said why."""
    check.equal(f"exit code of {what} ({outcome.errors.strip()})", outcome.code, 1)
    check.equal(f"output of {what}", outcome.output, "")
    missing = [word for word in words if word not in outcome.errors]
    check.equal(f"words that {what} lacks: {outcome.errors}", missing, [])


def topic_of(check: Check, user: str = "alice") -> str:
    topic = check.name("topic")
    check.ask(f"topic {topic}")
    for operation in ("READ", "WRITE"):
        check.ask(f"allow User:{user} {operation} topic {topic}")
    return topic


def works(check: Check, login: Login, user: str = "alice") -> None:
    topic = topic_of(check, user)
    written = write(check, login, topic, *numbers(0, 100))
    check.equal(f"exit code of writing ({written.errors})", written.code, 0)
    check.equal("values", read(check, login, topic).lines, numbers(0, 100))


def ssl(check: Check) -> None:
    works(check, Login("SSL"), "ANONYMOUS")


def mutual_tls(check: Check) -> None:
    works(check, Login("MUTUAL", certificate="alice"))
    cannot_connect(check, "kcat without a certificate", Login("MUTUAL"), "SSL", "alert")


def plain(check: Check) -> None:
    works(check, PLAIN)


def without_tls(check: Check) -> None:
    works(check, replace(PLAIN, listener="SASL_PLAINTEXT"))


def wrong_passwords(check: Check) -> None:
    text = "Authentication failed: Invalid username or password"
    for wrong in (replace(PLAIN, password="wrong"), replace(PLAIN, user="nobody")):
        cannot_connect(check, f"logging in as {wrong.user}", wrong, text)


def wrong_authority(check: Check) -> None:
    other = replace(PLAIN, authority="other-authority")
    cannot_connect(check, "kcat that trusts another", other, "certificate verify failed")


def expired_certificate(check: Check) -> None:
    cannot_connect(check, "kcat", Login("EXPIRED"), "certificate verify failed")


def no_right(check: Check) -> None:
    topic = topic_of(check, "bob")
    refused(check, "writing", write(check, PLAIN, topic, "x"), "Topic authorization failed")
    refused(check, "reading", read(check, PLAIN, topic), "Topic authorization failed")
    group = run(check, PLAIN, "-G", check.name("group"), topic)
    refused(check, "joining", group, "Group authorization failed")
    check.equal("an administrator reads", read(check, ADMIN, topic).lines, [])


def right_revoked_while_consuming(check: Check) -> None:
    topic = topic_of(check)
    arguments = ("-C", "-t", topic, "-p", "0", "-o", "beginning", "-u")
    with Running(check, *arguments, config=options(PLAIN)) as reader:
        write(check, ADMIN, topic, *numbers(0, 10))
        check.comes_to("lines", lambda: reader.lines, numbers(0, 10))
        check.ask(f"forbid User:alice READ topic {topic}")
        check.until("kcat shows why", lambda: "Topic authorization failed" in "\n".join(reader.errors))
        write(check, ADMIN, topic, "hidden")
        reader.wait()
        check.equal("lines", reader.lines, numbers(0, 10))
    check.ask(f"allow User:alice READ topic {topic}")
    check.equal("with it again", read(check, PLAIN, topic).lines, [*numbers(0, 10), "hidden"])


CHECKS = [
    ssl,
    mutual_tls,
    plain,
    without_tls,
    wrong_passwords,
    wrong_authority,
    expired_certificate,
    no_right,
    right_revoked_while_consuming,
]
