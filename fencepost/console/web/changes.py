"""Changes to the cluster: each is shown first, then confirmed by typing a name and a reason, checked, and carried out.

A form posts its fields to `/change/NAME`. The function declared by `@change(NAME)` reads the cluster and returns a
`Change`, which the first time is shown as a page with the same fields hidden. That preview is kept in the session. When
the page's own form comes, the function runs again: if the `world` that it reads is another than that of the preview, if
the preview is too old, of another user, cluster or session, or of other fields, nothing is done, and the new preview is
shown with a sentence on the difference. A preview is good for one change: the same form again gets the same answer.

To declare a change, return a `Change` with:

- `world`: all that the preview says or silently relies on, by a name in words: identities (topic id, producer id with
  epoch and start), states, present values. Leave out all that moves by itself and does not matter.
- `values`: each changed thing with its value before and after, for the audit log.
- `fixes`: fields computed from moving things (offsets, times). They are in the confirming form: the function uses
  them as they were shown, and does not compute them again.
- `perform`: makes the change. It raises WorldChangedError if it sees only then that the world is another one, and
  PartlyDoneError if some of it was done.

The function asks `visit.cluster`, never `visit.reads`, whose answers may be older. Every attempt is in the audit log,
see `audit`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from fencepost.client.errors import ClusterError, RefusedError, UnreachableError, check, error_name
from fencepost.console.web import audit
from fencepost.console.web.audit import Line, Outcome, Value
from fencepost.console.web.previews import GOOD_FOR_S, Preview, differences, digest_of, packed
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit

logger = logging.getLogger("fencepost.console")

TYPED: Final = "typed_name"
CSRF: Final = "csrf"
PREVIEW: Final = "preview"
PASSWORDS: Final = ("password", "password_again")
REASON: Final = "reason"
LONGEST_REASON: Final = 1_000
LONGEST_TYPED: Final = 120
_WORD: Final = "confirm"
_OF_CONFIRMING: Final = frozenset({TYPED, CSRF, PREVIEW, REASON, *PASSWORDS})
_NAMES: Final = ("name", "topic", "id", "user", "principal", "setting", "sink")
"""Fields that may name the subject of a refused change. Others may be confidential, as the value of a record is."""
_MOST_SAID: Final = 5


class WorldChangedError(Exception):
    """The cluster is not as the preview said; the message is a sentence on the difference. Nothing was done."""


class PartlyDoneError(ClusterError):
    """Some of a change was made. done: names of these parts; failed: those of the others, each with its
    reason.
    """

    def __init__(self, done: Sequence[str], failed: Sequence[str]) -> None:
        self.done = done
        self.failed = failed
        count = f"{len(done):,} of {len(done) + len(failed):,} were done"
        super().__init__(f"{count}{_listed(done, ': ')}. Not: {_listed(failed, '')}")


def _listed(names: Sequence[str], before: str) -> str:
    more = len(names) - _MOST_SAID
    said = ", ".join(names[:_MOST_SAID]) + (f" and {more:,} more" if more > 0 else "")
    return before + said if said else ""


@dataclass(frozen=True)
class Change:
    """A change, ready to be carried out. The module says how it is used.

    title: the page's title, an imperative. subject: name that has to be typed. effects: sentences on the effects.
    perform: makes the change and returns a sentence on it. table: a dry run, as rows under `table_head`.
    asks_password: the page that confirms asks for one, twice; it comes in no other way.
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
    world: Mapping[str, object] = field(default_factory=dict)
    values: Sequence[Value] = ()
    fixes: Mapping[str, str] = field(default_factory=dict)

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


def is_confirmed(form: Form) -> bool:
    """Whether this is the form of the page that confirms, not the one that asks to see it."""
    return TYPED in form


def field_of(form: Form, name: str, what: str) -> str:
    """A field that must not be empty. Raises BadFormError."""
    value = form.get(name, "").strip()
    if not value:
        raise BadFormError(f"{what} is missing")
    return value


async def answer(visit: Visit, name: str, form: Form) -> Page | Response:
    """Show a change, or carry it out. Raises ClusterError, BadFormError, NotFoundError."""
    return await _Attempt(visit, name, form).answer()


async def note_refusal(visit: Visit, name: str, form: Form, why: str) -> None:
    """Audit an attempt that the console itself refuses, before anything is read."""
    await _Attempt(visit, name, form).note(Outcome.REFUSED, why)


class _Attempt:
    """One post of a form of a change."""

    def __init__(self, visit: Visit, name: str, form: Form) -> None:
        self._visit = visit
        self._name = name
        self._form = form
        self._fields = {key: value for key, value in form.items() if key not in _OF_CONFIRMING}
        self._change: Change | None = None
        self._preview: Preview | None = None
        self._has_begun = False

    async def answer(self) -> Page | Response:
        if PREVIEW not in self._form:
            try:
                return await self._show(self._fields)
            except RefusedError as error:
                if error.is_denied:
                    await self.note(Outcome.REFUSED, str(error))
                raise
        previews = self._visit.session.previews
        preview = previews.find(self._form[PREVIEW], time.monotonic())
        if preview is None:
            return await self._refuse(
                f"The preview is older than {GOOD_FOR_S / 60:.0f} minutes, or of another session."
            )
        self._preview = preview
        if preview.answer is not None:
            return await self._same_again(preview.answer)
        # From here on to the end of the change a second post of the form waits for this one.
        preview.answer = asyncio.get_running_loop().create_future()
        try:
            result = await self._confirmed(preview)
        except BaseException as error:
            lost = ClusterError("the console ended in the middle of this change")
            preview.answer.set_exception(error if isinstance(error, Exception) else lost)
            preview.answer.exception()  # it may be that nobody else asks
            raise
        else:
            preview.answer.set_result(result)
            return result
        finally:
            if not self._has_begun:
                preview.answer = None  # nothing was done: the form may come again

    async def _same_again(self, known: asyncio.Future[Any]) -> Page | Response:
        if known.done() and (failure := known.exception()) is not None:
            return await self._refuse(f"This form was sent before, and that failed: {failure}. It was not sent again.")
        await self.note(Outcome.REPEATED, "the same form was sent before")
        result: Page | Response = await asyncio.shield(known)
        return result

    async def _confirmed(self, preview: Preview) -> Page | Response:
        try:
            self._change = prepared = await CHANGES[self._name](self._visit, self._form)
        except (ClusterError, BadFormError, NotFoundError) as error:
            await self.note(Outcome.REFUSED, str(error))
            raise
        world = prepared.world
        if preview.asked != digest_of(self._name, self._fields):
            return await self._refuse("This form is not the one that was shown.")
        place = await self._place()
        if preview.place != place:
            return await self._refuse("The preview was of another cluster or another user.")
        is_wrong, lacks_reason = self._form.get(TYPED) != prepared.to_type, not reason_of(self._form)
        if is_wrong or lacks_reason:
            await self.note(Outcome.REFUSED, "the typed name is wrong" if is_wrong else "the reason is missing")
            return self._page(prepared, preview, is_wrong=is_wrong, lacks_reason=lacks_reason, status=422)
        changed = differences(preview.world, world)
        if changed:
            return await self._refuse(*changed)
        return await self._perform(prepared)

    async def _perform(self, prepared: Change) -> Page | Response:
        try:
            await self.note(Outcome.BEGUN)
        except OSError as error:
            raise ClusterError(f"nothing was changed, as the audit log cannot be written: {error.strerror}") from error
        self._has_begun = True
        outcome, why = Outcome.INTERRUPTED, "the console ended in the middle of it"
        try:
            said = await prepared.perform()
            outcome, why = Outcome.DONE, said
        except WorldChangedError as error:
            outcome, why = Outcome.REFUSED, str(error)
            self._has_begun = False
            self._visit.readers.forget()
            return await self._show_again([str(error)])
        except PartlyDoneError as error:
            outcome, why = Outcome.PARTLY_DONE, str(error)
            raise
        except (RefusedError, BadFormError, NotFoundError) as error:
            outcome, why = Outcome.REFUSED, str(error)
            raise
        except UnreachableError as error:
            outcome, why = Outcome.UNKNOWN, str(error)
            raise
        except Exception as error:
            outcome, why = Outcome.FAILED, str(error) or type(error).__name__
            raise
        finally:
            self._visit.readers.forget()
            await self._note_end(outcome, why)
        self._visit.session.notice = said
        return RedirectResponse(prepared.done, status_code=303)

    async def _note_end(self, outcome: Outcome, why: str) -> None:
        try:
            # Shielded: this line has to be written also if the console is being ended.
            await asyncio.shield(self.note(outcome, why))
        except OSError:
            logger.exception("the audit log lacks the end of change %s: %s", self._name, outcome.value)

    async def _refuse(self, *changed: str) -> Page:
        await self.note(Outcome.REFUSED, " ".join(changed))
        return await self._show_again(changed)

    async def _show_again(self, changed: Sequence[str]) -> Page:
        """The preview anew, of the world as it is now."""
        fixes = self._change.fixes if self._change is not None else {}
        fields = {key: value for key, value in self._fields.items() if key not in fixes}
        return await self._show(fields, changed)

    async def _show(self, fields: Form, changed: Sequence[str] = ()) -> Page:
        prepared = await CHANGES[self._name](self._visit, fields)
        fields = {**fields, **prepared.fixes}
        asked = digest_of(self._name, fields)
        preview = Preview(
            asked, await self._place(), packed(prepared.world), time.monotonic(), prepared.subject[:LONGEST_REASON]
        )
        self._visit.session.previews.keep(preview)
        self._fields = dict(fields)
        return self._page(prepared, preview, changed=changed, status=409 if changed else 200)

    def _page(
        self,
        prepared: Change,
        preview: Preview,
        *,
        changed: Sequence[str] = (),
        is_wrong: bool = False,
        lacks_reason: bool = False,
        status: int = 200,
    ) -> Page:
        data = {
            "change": prepared,
            "name": self._name,
            "fields": self._fields,
            "preview": preview.token,
            "changed": changed,
            "is_wrong": is_wrong,
            "lacks_reason": lacks_reason,
            "reason": reason_of(self._form),
        }
        return Page("confirm.html", prepared.title, data, status=status)

    async def _place(self) -> tuple[str, ...]:
        """The cluster, by its id, too, as another may answer at its address; and the user."""
        visit = self._visit
        view = await visit.cluster.view(())
        return visit.cluster_name, visit.cluster.bootstrap, view.cluster_id, visit.person or ""

    async def note(self, outcome: Outcome, why: str = "") -> None:
        """Write a line of the audit log. Raises OSError."""
        prepared, client = self._change, self._visit.request.client
        guessed = next((self._fields[name] for name in _NAMES if self._fields.get(name)), "")
        await audit.record(
            Line(
                outcome=outcome,
                change=self._name,
                user=self._visit.person,
                address=client.host if client else "",
                role=self._visit.role.value,
                cluster=self._visit.cluster_name,
                bootstrap=self._visit.cluster.bootstrap,
                change_id=self._preview.change_id if self._preview is not None else "",
                subject=prepared.subject if prepared is not None else guessed,
                reason=reason_of(self._form),
                details=prepared.details if prepared is not None else "",
                values=prepared.values if prepared is not None else (),
                why=why,
            )
        )


def check_parts(asked: Sequence[str], codes: Mapping[str, int]) -> None:
    """Raise PartlyDoneError if some parts of a change failed, RefusedError if all did. codes: of those that failed, by
    name.
    """
    if codes and len(codes) == len(asked):
        check(next(iter(codes.values())), next(iter(codes)))
    if codes:
        done = [name for name in asked if name not in codes]
        raise PartlyDoneError(done, [f"{name} ({error_name(code)})" for name, code in codes.items()])


async def in_turn(parts: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    """Make the parts of a change, by their names, one after another. Raises PartlyDoneError if one fails behind others
    that were made.
    """
    done: list[str] = []
    for name, make in parts.items():
        try:
            await make()
        except ClusterError as error:
            if not done:
                raise
            left = [other for other in parts if other != name and other not in done]
            raise PartlyDoneError(done, [f"{name} ({error})", *(f"{other} (not tried)" for other in left)]) from error
        done.append(name)
