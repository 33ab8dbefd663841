"""What every client in Python is asked at a secured broker; `Clients` says how each of them does it.

Only the standard library: programs run in environments of their own.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.compat.python_checks import Check, FailedError

PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
SESSION_S = 2.0
"""How long sessions of the listener SHORT last."""


@dataclass(frozen=True)
class Login:
    """How a client connects.

    listener:    SASL_SSL, SASL_PLAINTEXT, SSL, MUTUAL, EXPIRED, SHORT.
    mechanism:   of SASL; empty without.
    token:       the name of the file with the token of OAUTHBEARER.
    authority:   the name of the file with the certificate of the authority that the client trusts.
    certificate: the name of its own certificate; empty without.
    """

    listener: str = "SASL_SSL"
    mechanism: str = ""
    user: str = "alice"
    password: str = "alice-secret"
    token: str = "alice"
    authority: str = "authority"
    certificate: str = ""

    @property
    def bootstrap(self) -> str:
        return os.environ[f"SECURED_{self.listener}"]

    @property
    def protocol(self) -> str:
        return {"MUTUAL": "SSL", "EXPIRED": "SSL", "SHORT": "SASL_PLAINTEXT"}.get(self.listener, self.listener)

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    def file(self, name: str) -> str:
        return str(Path(os.environ["SECURED_FILES"]) / name)

    @property
    def authority_file(self) -> str:
        return self.file(f"{self.authority}.pem")

    @property
    def token_text(self) -> str:
        return Path(self.file(f"{self.token}.jwt")).read_text()

    def of(self, user: str) -> Login:
        return replace(self, user=user, password=PASSWORDS[user])


PLAIN = Login(mechanism="PLAIN")
ADMIN = PLAIN.of("admin")


class Writer(ABC):
    @abstractmethod
    def write(self, topic: str, *values: str) -> None:
        """Write values to the topic's only partition and wait. Raises the client's exception when one is refused."""


class TransactionalWriter(Writer):
    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...


class Reader(ABC):
    @abstractmethod
    def poll(self) -> list[str]:
        """What came meanwhile. Raises the client's exception when the broker refuses."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the offsets of what was polled. Raises the client's exception when the broker refuses."""


class Clients(ABC):
    """One client library.

    wrong_password ... wrong_transactional_id: the names that `error_of` has for the refusals.
    shows_hidden_topics: a consumer that subscribes to a topic that it may not see raises an error, and does not wait.
    """

    wrong_password: str
    wrong_token: str
    wrong_certificate: str
    no_certificate: str
    wrong_topic: str
    wrong_group: str
    wrong_transactional_id: str
    shows_hidden_topics = True

    @abstractmethod
    def writer(self, check: Check, login: Login) -> AbstractContextManager[Writer]: ...

    @abstractmethod
    def transactional_writer(
        self, check: Check, login: Login, transactional_id: str
    ) -> AbstractContextManager[TransactionalWriter]:
        """A producer that has initialized its transactions, which raises what the broker refuses."""

    @abstractmethod
    def reader(self, check: Check, login: Login, topic: str, group: str = "") -> AbstractContextManager[Reader]:
        """A consumer from the beginning, with a group or with the topic's only partition assigned."""

    @abstractmethod
    def connection_error(self, check: Check, login: Login) -> str:
        """The name of the error that keeps a client from connecting."""

    @abstractmethod
    def error_of(self, call: Callable[[], object]) -> str:
        """The name of the error that a call raises, "none" when it raises none."""


def read(check: Check, reader: Reader, count: int) -> list[str]:
    values: list[str] = []
    for _ in check.turns(f"reading {count} records"):
        values += reader.poll()
        if len(values) >= count:
            break
    return values


def checks_of(clients: Clients) -> list[Callable[[Check], None]]:
    """The checks that every client makes."""

    def topic_of(check: Check, user: str = "alice", *operations: str) -> str:
        """A topic of the check's own with what a user may do with it: read and write, if nothing else is said."""
        topic = check.name("topic")
        check.ask(f"topic {topic}")
        for operation in operations or ("READ", "WRITE"):
            check.ask(f"allow User:{user} {operation} topic {topic}")
        return topic

    def group_of(check: Check, user: str = "alice") -> str:
        group = check.name("group")
        check.ask(f"allow User:{user} READ group {group}")
        return group

    def works(check: Check, login: Login, user: str = "alice") -> None:
        topic, group = topic_of(check, user), group_of(check, user)
        values = [str(number) for number in range(100)]
        with clients.writer(check, login) as writer:
            writer.write(topic, *values)
        with clients.reader(check, login, topic, group) as reader:
            check.equal("values", read(check, reader, 100), values)
            reader.commit()

    def ssl(check: Check) -> None:
        works(check, Login("SSL"), "ANONYMOUS")

    def mutual_tls(check: Check) -> None:
        works(check, Login("MUTUAL", certificate="alice"))
        check.equal("without a certificate", clients.connection_error(check, Login("MUTUAL")), clients.no_certificate)

    def plain(check: Check) -> None:
        works(check, PLAIN)

    def scram_sha_256(check: Check) -> None:
        works(check, Login(mechanism="SCRAM-SHA-256"))

    def scram_sha_512(check: Check) -> None:
        works(check, Login(mechanism="SCRAM-SHA-512"))

    def oauthbearer(check: Check) -> None:
        works(check, Login(mechanism="OAUTHBEARER"))
        for token in ("expired", "forged"):
            error = clients.connection_error(check, Login(mechanism="OAUTHBEARER", token=token))
            check.equal(f"with a token that is {token}", error, clients.wrong_token)

    def without_tls(check: Check) -> None:
        works(check, Login("SASL_PLAINTEXT", "SCRAM-SHA-256"))

    def wrong_passwords(check: Check) -> None:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = Login(mechanism=mechanism)
            for what, wrong in (
                ("a wrong password", replace(login, password="wrong")),
                ("another's password", replace(login, user="bob")),
                ("an unknown user", replace(login, user="nobody")),
            ):
                error = clients.connection_error(check, wrong)
                check.equal(f"{mechanism} with {what}", error, clients.wrong_password)
        works(check, PLAIN)

    def wrong_authority(check: Check) -> None:
        login = replace(PLAIN, authority="other-authority")
        check.equal("error", clients.connection_error(check, login), clients.wrong_certificate)

    def expired_certificate(check: Check) -> None:
        check.equal("error", clients.connection_error(check, Login("EXPIRED")), clients.wrong_certificate)

    def no_right(check: Check) -> None:
        topic, group = topic_of(check, "bob"), check.name("group")
        with clients.writer(check, PLAIN) as writer:
            check.equal("writing", clients.error_of(lambda: writer.write(topic, "x")), clients.wrong_topic)
        check.ask(f"allow User:alice READ group {group}")
        if clients.shows_hidden_topics:
            shown(check, topic, group, clients.wrong_topic)
        else:
            with clients.reader(check, PLAIN, topic, group) as reader:
                check.equal("records of a hidden topic", [reader.poll() for _ in range(10)], [[]] * 10)
        check.ask(f"forbid User:alice READ group {group}")
        check.ask(f"allow User:alice READ topic {topic}")
        shown(check, topic, group, clients.wrong_group)
        with clients.reader(check, ADMIN, topic) as reader, clients.writer(check, ADMIN) as writer:
            writer.write(topic, "only this")
            check.equal("what was written", read(check, reader, 1), ["only this"])

    def shown(check: Check, topic: str, group: str, error: str) -> None:
        """A consumer shows an error and no record."""

        def poll() -> None:
            with clients.reader(check, PLAIN, topic, group) as reader:
                check.equal("records", reader.poll(), [])
                for _ in check.turns(f"the consumer shows {error}"):
                    check.equal("records", reader.poll(), [])

        check.equal("what the consumer shows", clients.error_of(poll), error)

    def right_revoked_while_producing(check: Check) -> None:
        topic = topic_of(check, "alice", "WRITE")

        def error_of_writing(value: str) -> str:
            return clients.error_of(lambda: writer.write(topic, value))

        with clients.writer(check, PLAIN) as writer:
            for number in range(20):  # the broker knows the same request by then
                writer.write(topic, str(number))
            for turn in range(3):
                check.ask(f"forbid User:alice WRITE topic {topic}")
                check.equal("without the right", error_of_writing("refused"), clients.wrong_topic)
                check.ask(f"allow User:alice WRITE topic {topic}")
                # A client may hold on to the refusal for a moment.
                check.comes_to("with it again", partial(error_of_writing, f"again {turn}"), "none")
        with clients.reader(check, ADMIN, topic) as reader:
            want = [*map(str, range(20)), "again 0", "again 1", "again 2"]
            check.equal("what was written", read(check, reader, 23), want)

    def right_revoked_while_consuming(check: Check) -> None:
        topic, group = topic_of(check, "alice", "READ"), group_of(check)
        with clients.writer(check, ADMIN) as admin, clients.reader(check, PLAIN, topic, group) as reader:
            admin.write(topic, *map(str, range(10)))
            check.equal("values", read(check, reader, 10), [str(number) for number in range(10)])
            reader.commit()
            check.ask(f"forbid User:alice READ topic {topic}")
            poll_until_refused(check, reader)
            admin.write(topic, "hidden")
            # A client may show the same error once only.
            errors = {clients.error_of(lambda: check.equal("records", reader.poll(), [])) for _ in range(10)}
            check.equal("while records come", errors <= {"none", clients.wrong_topic}, True)
            check.ask(f"allow User:alice READ topic {topic}")
            values: list[str] = []

            def poll() -> None:
                values.extend(reader.poll())

            for _ in check.turns("the right is back"):
                error = clients.error_of(poll)  # an error may be left from before
                check.equal("what is left", error in ("none", clients.wrong_topic), True)
                if values:
                    break
            check.equal("values", values, ["hidden"])
            check.ask(f"forbid User:alice READ group {group}")
            check.equal("committing", clients.error_of(reader.commit), clients.wrong_group)

    def poll_until_refused(check: Check, reader: Reader) -> None:
        """A fetch that waited may still end well; what comes after it is refused."""

        def poll() -> None:
            check.equal("records", reader.poll(), [])

        for _ in check.turns("the consumer shows that it may not read"):
            error = clients.error_of(poll)
            if error != "none":
                break
        check.equal("what the consumer shows", error, clients.wrong_topic)

    def right_revoked_in_transaction(check: Check) -> None:
        topic, transactional_id = topic_of(check, "alice", "WRITE"), check.name("transaction")
        right = f"User:alice WRITE transactional-id {transactional_id}"

        def initialize() -> None:
            with clients.transactional_writer(check, PLAIN, transactional_id):
                raise FailedError("transactions were initialized without a right")

        check.equal("initializing", clients.error_of(initialize), clients.wrong_transactional_id)
        check.ask(f"allow {right}")
        with clients.transactional_writer(check, PLAIN, transactional_id) as writer:
            for number in range(3):
                writer.begin()
                writer.write(topic, f"committed {number}")
                writer.commit()
            writer.begin()
            writer.write(topic, "never committed")
            check.ask(f"forbid {right}")
            check.equal("committing", clients.error_of(writer.commit), clients.wrong_transactional_id)
        check.ask(f"allow {right}")
        with clients.transactional_writer(check, PLAIN, transactional_id) as writer:  # ends what the first left open
            writer.begin()
            writer.write(topic, "the last")
            writer.commit()
        with clients.reader(check, ADMIN, topic) as reader:
            want = [*(f"committed {number}" for number in range(3)), "the last"]
            check.equal("what was committed", read(check, reader, 4), want)

    def users_and_rights_survive_a_crash(check: Check) -> None:
        topic, login = topic_of(check, "alice", "WRITE"), Login(mechanism="SCRAM-SHA-512")

        def error_of_writing(value: str) -> str:
            return clients.error_of(lambda: writer.write(topic, value))

        with clients.writer(check, login) as writer:
            writer.write(topic, "before")
            check.ask(f"forbid User:alice WRITE topic {topic}")
            check.restart("kill")
            check.comes_to("without the right", partial(error_of_writing, "refused"), clients.wrong_topic)
            check.ask(f"allow User:alice WRITE topic {topic}")
            check.restart("kill")
            check.comes_to("with it again", partial(error_of_writing, "after"), "none")
        with clients.reader(check, ADMIN, topic) as reader:
            check.equal("what was written", read(check, reader, 2), ["before", "after"])

    def sessions_that_end(check: Check) -> None:
        """Clients authenticate again, or connect again, when their session ends; they lose and repeat nothing."""
        topic, group = topic_of(check), group_of(check)
        login = Login("SHORT", "SCRAM-SHA-256")
        values: list[str] = []
        with clients.writer(check, login) as writer, clients.reader(check, login, topic, group) as reader:
            got: list[str] = []
            started = time.monotonic()
            while time.monotonic() < started + 2.5 * SESSION_S:
                value = str(len(values))
                writer.write(topic, value)
                values.append(value)
                got += reader.poll()
            got += read(check, reader, len(values) - len(got))
            reader.commit()
        check.equal("what was read", got, values)

    return [
        ssl,
        mutual_tls,
        plain,
        scram_sha_256,
        scram_sha_512,
        oauthbearer,
        without_tls,
        wrong_passwords,
        wrong_authority,
        expired_certificate,
        no_right,
        right_revoked_while_producing,
        right_revoked_while_consuming,
        right_revoked_in_transaction,
        users_and_rights_survive_a_crash,
        sessions_that_end,
    ]
