"""Changes to the cluster: each is shown first, then confirmed by typing a name, carried out, and audited.

A form posts its fields to `/change/NAME`. The first time the answer is a page that describes the effects, with the
same fields hidden and one more to type the name into. With the right name the change is carried out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from fencepost.client.errors import ClusterError
from fencepost.console.web import audit
from fencepost.console.web.visit import BadFormError, Page, Visit

TYPED: Final = "typed_name"
CSRF: Final = "csrf"
PASSWORDS: Final = ("password", "password_again")
REASON: Final = "reason"
LONGEST_REASON: Final = 1_000
LONGEST_TYPED: Final = 120
_WORD: Final = "confirm"


@dataclass(frozen=True)
class Change:
    """A change, ready to be carried out.

    title: the page's title, an imperative. subject: name that has to be typed. effects: sentences on the effects.
    perform: makes the change and returns a sentence on it. table: a dry run, as rows under `table_head`.
    asks_password: the page that confirms asks for one, twice; it comes in no other way.
    asks_reason: it asks for the person's reason, which the audit logs of the console and of the broker get.
    """

    title: str
    subject: str
    effects: Sequence[str]
    perform: Callable[[], Awaitable[str]]
    back: str
    done: str
    is_dangerous: bool = True
    details: str = ""
    table_head: Sequence[str] = ()
    table: Sequence[Sequence[Any]] = field(default=())
    asks_password: bool = False
    asks_reason: bool = False

    @property
    def to_type(self) -> str:
        """The subject, or a word if the subject cannot be typed: of any text, ids may have control characters."""
        name = self.subject
        can_be_typed = name.isprintable() and name == name.strip() and 0 < len(name) <= LONGEST_TYPED
        return name if can_be_typed else _WORD


Form = Mapping[str, str]
Prepare = Callable[[Visit, Form], Awaitable[Change]]

CHANGES: Final[dict[str, Prepare]] = {}
"""By name. Filled by the modules of pages, each with the changes that its pages offer."""


def change(name: str) -> Callable[[Prepare], Prepare]:
    """Declare a change: `@change("delete-topic")`."""

    def declare(prepare: Prepare) -> Prepare:
        CHANGES[name] = prepare
        return prepare

    return declare


def reason_of(form: Form) -> str:
    """The reason that a person has given; empty before the page that asks for it."""
    return form.get(REASON, "").strip()[:LONGEST_REASON]


def field_of(form: Form, name: str, what: str) -> str:
    """A field that must not be empty. Raises BadFormError."""
    value = form.get(name, "").strip()
    if not value:
        raise BadFormError(f"{what} is missing")
    return value


async def answer(visit: Visit, name: str, form: Form) -> Page | Response:
    """Show a change, or carry it out. Raises ClusterError, BadFormError."""
    prepared = await CHANGES[name](visit, form)
    typed, reason = form.get(TYPED), reason_of(form)
    lacks_reason = prepared.asks_reason and not reason
    if typed != prepared.to_type or lacks_reason:
        fields = {key: value for key, value in form.items() if key not in (TYPED, CSRF, REASON, *PASSWORDS)}
        data = {
            "change": prepared,
            "name": name,
            "fields": fields,
            "is_wrong": typed is not None and typed != prepared.to_type,
            "lacks_reason": typed is not None and lacks_reason,
            "reason": reason,
        }
        return Page("confirm.html", prepared.title, data, status=200 if typed is None else 422)
    outcome = "failed"
    try:
        visit.session.notice = await prepared.perform()
        outcome = "done"
    except ClusterError as error:
        outcome = str(error)
        raise
    finally:
        visit.readers.forget()
        client = visit.request.client
        audit.record(
            user=visit.cluster.user,
            address=client.host if client else "",
            change=name,
            subject=prepared.subject,
            details=f"{prepared.details}; reason: {reason}" if prepared.asks_reason else prepared.details,
            outcome=outcome,
        )
    return RedirectResponse(prepared.done, status_code=303)
