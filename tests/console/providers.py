"""A small OpenID Connect provider for tests, which checks its clients, and whose answers a test can spoil."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from fencepost.soak.free_port import free_port

CLIENT_ID = "fencepost-console"
CLIENT_SECRET = "not-known-to-others"


class StrictProvider:
    """Names everybody `subject`, with `claims`.

    spoil: changes the claims of an id token before it is signed. error: answered in place of a code. is_away: whether
    every answer is 503. lasts_s: seconds for which access tokens are said to last.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.subject = "u-1"
        self.claims: dict[str, Any] = {"preferred_username": "ann", "groups": ["staff"]}
        self.only_in_user_info: dict[str, Any] = {}
        self.spoil: Callable[[dict[str, Any]], None] = lambda claims: None
        self.signing: Callable[[dict[str, Any]], str] | None = None
        self.error: dict[str, str] | None = None
        self.metadata: dict[str, Any] = {}
        self.is_away = False
        self.lasts_s = 3600
        self.gives_refresh_token = True
        self.refuses_refresh = False
        self.asked: list[str] = []
        self.public_keys: list[Mapping[str, Any]] = []
        self.rotate()
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()
        self._start()

    def rotate(self, *, with_number: bool = True) -> None:
        """Sign with another key from now on."""
        number = secrets.token_hex(4) if with_number else None
        self.key = RSAKey.generate_key(2048, {"kid": number} if number else None)
        self.public_keys = [self.key.as_dict(private=False)]

    def _start(self) -> None:
        routes = [
            Route("/.well-known/openid-configuration", self._configuration),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/keys", self._keys),
            Route("/userinfo", self._user_info),
        ]
        config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=self.port, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline_s = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < deadline_s, "the provider did not start"
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)

    # answers

    def _said(self, what: str, answer: Callable[[], Response]) -> Response:
        self.asked.append(what)
        return Response("away", 503) if self.is_away else answer()

    async def _configuration(self, _: Request) -> Response:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "end_session_endpoint": f"{self.issuer}/end",
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            **self.metadata,
        }
        return self._said("configuration", lambda: JSONResponse(found))

    async def _keys(self, _: Request) -> Response:
        return self._said("keys", lambda: JSONResponse({"keys": self.public_keys}))

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT_ID)
        assert asked["code_challenge_method"] == "S256"
        assert len(asked["state"]) >= 20
        assert len(asked["nonce"]) >= 16
        answer = self.error
        if answer is None:
            code = secrets.token_hex(8)
            self._codes[code] = asked
            answer = {"code": code}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({**answer, 'state': asked['state']})}", 303)

    async def _token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        by_name = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        assert request.headers["authorization"] == f"Basic {by_name}"
        return self._said(form["grant_type"], lambda: self._tokens(form))

    def _tokens(self, form: dict[str, str]) -> Response:
        if form["grant_type"] == "refresh_token":
            if self.refuses_refresh or form["refresh_token"] not in self._refresh_tokens:
                return JSONResponse({"error": "invalid_grant", "error_description": "the session was ended"}, 400)
            return JSONResponse(self._made(None))
        asked = self._codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if asked is None or asked["code_challenge"] != challenge.decode():
            return JSONResponse({"error": "invalid_grant", "error_description": "the code is wrong"}, 400)
        assert asked["redirect_uri"] == form["redirect_uri"]
        return JSONResponse(self._made(asked["nonce"]))

    def _made(self, nonce: str | None) -> dict[str, Any]:
        now_s = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": self.subject,
            "aud": CLIENT_ID,
            "iat": now_s,
            "exp": now_s + 300,
            **({} if nonce is None else {"nonce": nonce}),
            **self.claims,
        }
        self.spoil(claims)
        header = {"alg": "RS256", **({"kid": self.key.kid} if "kid" in self.public_keys[0] else {})}
        made = self.signing(claims) if self.signing is not None else jwt.encode(header, claims, self.key)
        tokens = {
            "access_token": secrets.token_hex(8),
            "token_type": "Bearer",
            "expires_in": self.lasts_s,
            "id_token": made,
        }
        if self.gives_refresh_token:
            tokens["refresh_token"] = secrets.token_hex(8)
            self._refresh_tokens.add(str(tokens["refresh_token"]))
        return tokens

    async def _user_info(self, _: Request) -> Response:
        found = {"sub": self.subject, **self.only_in_user_info}
        return self._said("userinfo", lambda: JSONResponse(found))


def come_back(browser: httpx.Client, address: str = "/oidc/log-in") -> httpx.Response:
    """Log in at the provider, and bring its answer to the console, without following it."""
    begun = browser.get(address, follow_redirects=False)
    assert begun.status_code == 303, begun.text
    answered = httpx.get(begun.headers["location"], follow_redirects=False)
    back = urlsplit(answered.headers["location"])
    return browser.get(f"{back.path}?{back.query}", follow_redirects=False)
