"""Who sees the page: keys, the one-time token, cookies, hosts, headers."""

from __future__ import annotations

import hmac
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient
from tests.fixtures.view import HOST, client_of

from leporello.gateway.keys import Keys, hashed, new_key
from leporello.store import open_store
from leporello.view.access import HEADERS, SIGN_IN_SECONDS, TOKEN_SECONDS, Access
from leporello.view.app import PageRoutes, create_app
from leporello.view.demo import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from httpx2 import Response
    from starlette.requests import Request

    from leporello.store import Store

KEYS = {name: new_key() for name in ("ann", "bob", "admin")}


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(open_store(":memory:")) as made:
        for owner in ("ann", "bob"):
            made.append("talk", [{"role": "user", "content": f"the secret plan of {owner}"}], owner=owner)
        yield made


def served(store: Store, clock: Callable[[], float] = time.time, *, kind: type[Access] = Access) -> TestClient:
    access = kind(keys=Keys({name: hashed(key) for name, key in KEYS.items()}), clock=clock)
    return TestClient(create_app(PageRoutes(store, access)), base_url="http://pages.example", follow_redirects=False)


def sign_in(client: TestClient, name: str) -> Response:
    return client.post("/view/sign-in", data={"key": KEYS[name]}, headers={"origin": "http://pages.example"})


PAGES = (
    "/view",
    "/view/window?c=talk",
    "/view/search?q=plan",
    "/view/time?c=talk",
    "/view/raw?c=talk",
    "/view/cost?c=talk",
)


def test_without_a_key_nothing_is_seen(store: Store) -> None:
    client = served(store)
    for path in PAGES:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/view/sign-in")
        assert "plan" not in answer.text
    assert client.get("/view", headers={"hx-request": "true"}).status_code == 401
    assert client.get("/view?key=" + KEYS["ann"]).status_code == 303
    wrong = client.post("/view/sign-in", data={"key": "lpr-no"})
    assert (wrong.status_code, wrong.headers.get("set-cookie")) == (401, None)


class _SeesAll(Access):
    """Planted: every key sees what the admin sees."""

    def admit(self, owner: str | None, *, name: str = "") -> str:
        return super().admit(None, name=name)


def others(store: Store, kind: type[Access] = Access) -> list[str]:
    """Return the pages on which Ann sees something of Bob's."""
    client = served(store, kind=kind)
    assert sign_in(client, "ann").status_code == 303
    paths = [*PAGES, *(f"{path}&owner=bob" for path in PAGES if "?" in path), "/view/message?c=talk&id=m2&owner=bob"]
    return [path for path in paths if "plan of bob" in client.get(path).text]


def test_a_key_sees_its_own_conversations_and_the_admin_all(store: Store) -> None:
    assert others(store) == []
    assert len(others(store, _SeesAll)) >= 3
    client = served(store)
    sign_in(client, "ann")
    assert "plan of ann" in client.get("/view").text
    client = served(store)
    sign_in(client, "admin")
    assert all(f"plan of {name}" in client.get("/view").text for name in ("ann", "bob"))
    assert "plan of bob" in client.get("/view/window?c=talk&owner=bob").text


def test_the_cookie_is_out_of_reach_and_expires(store: Store) -> None:
    clock = Clock()
    client = served(store, clock)
    cookie = sign_in(client, "ann").headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/view", f"max-age={SIGN_IN_SECONDS}"))
    assert KEYS["ann"].lower() not in cookie
    assert "secure" not in cookie
    behind = {"origin": "http://pages.example", "x-forwarded-proto": "https"}
    given = served(store, clock).post("/view/sign-in", data={"key": KEYS["ann"]}, headers=behind)
    assert "; secure" in given.headers["set-cookie"].lower()
    assert client.get("/view").status_code == 200
    clock.now += SIGN_IN_SECONDS + 1
    assert client.get("/view").status_code == 303
    sign_in(client, "ann")
    assert client.post("/view/sign-out").status_code == 303
    assert client.get("/view").status_code == 303


def test_a_foreign_site_cannot_send_a_form(store: Store) -> None:
    client = served(store)
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        answer = client.post("/view/sign-in", data={"key": KEYS["ann"]}, headers=headers)
        assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None)


FOREIGN = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


class _SeesNoSites(Access):
    """Planted: what a browser says about who asks is not looked at."""

    def is_for_us(self, request: Request) -> bool:
        return True


def reached_by_a_foreign_site(store: Store, kind: type[Access] = Access) -> list[str]:
    """Return what the page of another site can do behind its reader's back."""
    found = []
    client = served(store, kind=kind)
    sign_in(client, "ann")
    if client.post("/view/sign-out", headers={"sec-fetch-site": "cross-site"}).headers.get("set-cookie"):
        found.append("sign-out")
    local = client_of(store, access=kind(keys=Keys({}), local=None))
    asked = [
        FOREIGN,
        {**FOREIGN, "sec-fetch-site": "same-site"},  # another port of this machine
        {**LINK, "sec-fetch-dest": "iframe"},
    ]
    for place in ("/view/search?q=plan", "/view/window?c=talk&owner=ann"):
        found += [f"{place} {headers}" for headers in asked if local.get(place, headers=headers).status_code != 403]
    return found


def test_a_foreign_site_loads_nothing_and_ends_no_sign_in(store: Store) -> None:
    """Without keys no cookie tells who asks: the time that a search takes would tell a foreign page what is stored."""
    assert reached_by_a_foreign_site(store) == []
    assert len(reached_by_a_foreign_site(store, _SeesNoSites)) == 7
    assert client_of(store).get("/view", headers=LINK).status_code == 200


def test_a_sign_in_takes_no_cookie_from_outside(store: Store) -> None:
    """A value that was set before, by somebody else, is not the one that a sign-in is known by."""
    client = served(store)
    known = "chosen-by-somebody-else"
    name = sign_in(client, "ann").headers["set-cookie"].partition("=")[0]
    client.cookies.clear()
    client.cookies.set(name, known, path="/view")
    assert client.get("/view").status_code == 303
    given = sign_in(client, "ann").headers["set-cookie"]
    assert known not in given
    client.cookies.clear()
    client.cookies.set(name, known, path="/view")
    assert client.get("/view").status_code == 303


@pytest.mark.parametrize("where", ["//evil.example", "https://evil.example/", "/\\evil.example", "%0d%0ax: y"])
def test_no_redirect_leads_elsewhere(store: Store, where: str) -> None:
    client = served(store)
    for name in ("next", "to", "url", "return"):
        assert client.get(f"/view/window?c=talk&{name}={where}").headers["location"] == "/view/sign-in"
        answer = client.post(
            f"/view/sign-in?{name}={where}",
            data={"key": KEYS["ann"], name: where},
            headers={"origin": "http://pages.example"},
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/view")
        client.cookies.clear()
    assert client.get(f"/view{where}").headers.get("location", "/view").startswith("/view")


def test_every_key_is_compared_in_full_and_in_constant_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes are compared, of every known key, whatever was given; so the time tells nothing about a key."""
    compared: list[tuple[str, str]] = []
    real = hmac.compare_digest

    def noted(given: str, known: str) -> bool:
        compared.append((given, known))
        return real(given, known)

    monkeypatch.setattr("leporello.gateway.keys.hmac.compare_digest", noted)
    for key in (KEYS["ann"], KEYS["ann"][:-1], "x"):
        compared.clear()
        served(store).post("/view/sign-in", data={"key": key}, headers={"origin": "http://pages.example"})
        assert [known for _, known in compared] == [hashed(known) for known in KEYS.values()]
        assert {given for given, _ in compared} == {hashed(key)}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0:80", ""])
def test_without_keys_only_this_machine_is_served(store: Store, host: str) -> None:
    client = client_of(store)
    assert client.get("/view").status_code == 200
    assert client.get("/view", headers={"host": host}).status_code == 403
    assert client.get("/view", headers={"origin": "http://evil.example"}).status_code == 403


def test_a_token_opens_the_page_once(store: Store) -> None:
    clock = Clock()
    access = Access(keys=Keys({}), local=None, tokens=True, clock=clock)
    client = TestClient(create_app(PageRoutes(store, access)), base_url=HOST, follow_redirects=False)
    assert client.get("/view").status_code == 303
    token, late = access.new_token(), access.new_token()
    assert client.get(f"/view/enter?token={token}x").status_code == 403
    assert client.get(f"/view/enter?token={token}").headers["location"] == "/view"
    assert "plan of bob" in client.get("/view").text
    again = TestClient(create_app(PageRoutes(store, access)), base_url=HOST, follow_redirects=False)
    assert again.get(f"/view/enter?token={token}").status_code == 403
    clock.now += TOKEN_SECONDS + 1
    assert again.get(f"/view/enter?token={late}").status_code == 403
    assert again.get("/view").status_code == 303


def test_every_answer_carries_the_headers(store: Store) -> None:
    client = client_of(store)
    paths = [*PAGES, "/view/sign-in", "/view/enter", "/view/static/view.css", "/view/static/no", "/", "/no"]
    for path in paths:
        given = client.get(path, params={"owner": "ann"} if "?" in path else None).headers
        assert {name for name in HEADERS if name not in given} == set(), path
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "htmx.LICENSE", "%2e%2e/app.py"])
def test_only_the_files_of_the_page_are_served(store: Store, name: str) -> None:
    answer: Any = client_of(store).get(f"/view/static/{name}")
    assert answer.status_code == 404
