"""The page in a real browser: no complaint, no request elsewhere, by keyboard alone, in light, dark and on a phone."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect, sync_playwright
from tests.view.test_view_hostile import hostile_store

from leporello import Session
from leporello.config import Config
from leporello.gateway.keys import Keys, hashed, new_key
from leporello.gateway.server import Server, bound
from leporello.store import JournalRow, open_store
from leporello.transcripts import read_transcripts
from leporello.view.access import Access
from leporello.view.actions import Actions
from leporello.view.app import PageRoutes, create_app
from leporello.view.demo import CONVERSATION, SimulatedProvider, play
from leporello.view.windows import window_now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from leporello.store import Store

pytestmark = pytest.mark.slow

AXE = Path(__file__).parent / "axe" / "axe.min.js"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1_100, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1_100, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
LOGGED = "An imported log"
PAGES = (
    "",
    "/search?q=lock",
    "/window",
    "/time?at=38",
    "/cost",
    "/tree?first=1&second=3",
    "/dag?node=n1",
    "/artifacts",
    "/node?id=n1",
    "/message?id=m41",
)
RULES = {"light": None, "dark": ["color-contrast"]}
PLANTED = {"light": {"image-alt", "label"}, "dark": {"color-contrast"}}
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
SERIOUS = """async only => {
    const rules = only ? {runOnly: only} : {};
    const found = await axe.run(document, {resultTypes: ["violations"], ...rules});
    return found.violations.filter(one => ["serious", "critical"].includes(one.impact))
        .map(one => one.id + ": " + one.nodes.map(node => node.target.join(" ")).slice(0, 3).join(", "));
}"""


class Recorded:
    """Notes what each request wanted and the status of its answer."""

    def __init__(self, app: ASGIApp, answered: list[tuple[str, int]]) -> None:
        self._app = app
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = dict(scope.get("headers", ())).get(b"sec-fetch-dest", b"").decode()

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answered.append((wanted, message["status"]))
            await send(message)

        await self._app(scope, receive, note)


class Served:
    """The page on a port of this machine."""

    def __init__(self, store: Store, access: Access, actions: Actions | None = None) -> None:
        self.answered: list[tuple[str, int]] = []
        """What a browser wanted each page for (Sec-Fetch-Dest), and the status of the answer."""
        app = create_app(PageRoutes(store, access, actions=actions))
        app.add_middleware(Recorded, answered=self.answered)
        self._listener = bound("127.0.0.1", 0)
        ready = threading.Event()
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = Server(app, on_ready=lambda _: ready.set())
        self._thread = threading.Thread(target=self._server.run, args=[self._listener], daemon=True)
        self._thread.start()
        assert ready.wait(20)

    def close(self) -> None:
        self._server.stop()
        self._thread.join(20)
        self._listener.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "make installs it: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(demo: Store) -> Iterator[str]:
    with closing(Served(demo, Access(keys=Keys({}), local=None))) as page:
        yield page.address


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a log of Claude Code, played through a session: the file that LEPORELLO_TEST_LOG names, else a made one."""
    log = Path(os.environ.get("LEPORELLO_TEST_LOG") or made_log(tmp_path_factory.mktemp("log") / "session.jsonl"))
    transcript = next(iter(read_transcripts(log)))
    with closing(open_store(":memory:")) as store:
        options: dict[str, Any] = {"config": {}, "store": store, "model": "claude-sonnet-5", "llm": None}
        with Session.open("log", engine="lcm", context_length=24_000, provider="anthropic", **options) as session:
            play(session, transcript.messages, SimulatedProvider(time.time).ask)
            assert session.usage().compactions > 1
        store.ensure("log", title=LOGGED)
        with closing(Served(store, Access(keys=Keys({}), local=None))) as page:
            yield page.address


def made_log(path: Path) -> Path:
    """Write a log as Claude Code writes them: a record for each block, results as messages of the user."""
    messages: list[tuple[str, Any]] = [("user", "Make the export faster.")]
    for n in range(90):
        file = f"src/export/part_{n % 12}.py"
        use = {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": {"file_path": file}}
        text = f"{n} def export_{n}(): ...\n" * 60
        messages += [
            ("assistant", [use]),
            ("user", [{"type": "tool_result", "tool_use_id": use["id"], "content": text}]),
        ]
        if n % 10 == 9:
            messages += [
                ("assistant", [{"type": "text", "text": f"`{file}` waits for the lock in export_{n}."}]),
                ("user", f"Go on with part {n % 12}, but never touch migrations/."),
            ]
    messages.append(("assistant", [{"type": "text", "text": "The export takes 12 s instead of 90."}]))
    with path.open("w", encoding="utf-8") as log:
        for n, (role, content) in enumerate(messages):
            record = {
                "type": role,
                "uuid": f"u{n}",
                "sessionId": "export",
                "isSidechain": False,
                "timestamp": f"2026-03-01T10:{n // 60:02d}:{n % 60:02d}.000Z",
                "message": {"id": f"msg_{n}", "role": role, "content": content},
            }
            log.write(json.dumps(record) + "\n")
    return path


def opened(browser: Browser, heard: list[str], **look: Any) -> Page:
    """Open a tab, and take down what it complains about and what it asks of others than this machine."""
    shown = browser.new_context(**look).new_page()
    shown.on("console", lambda message: heard.append(message.text))
    shown.on("pageerror", lambda error: heard.append(str(error)))
    shown.on("request", lambda asked: None if asked.url.startswith("http://127.0.0.1:") else heard.append(asked.url))
    return shown


def place(path: str) -> str:
    if not path or path.startswith("/search"):
        return f"/view{path}"
    return f"/view{path}{'&' if '?' in path else '?'}c={CONVERSATION}"


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_quiet_reads_well_and_fits(browser: Browser, served: str, look: str) -> None:
    heard: list[str] = []
    shown = opened(browser, heard, **LOOKS[look])
    for path in PAGES:
        shown.goto(served + place(path))
        if path == "/cost":
            expect(shown.get_by_text("Read again after a fold")).to_be_visible()
        assert heard == [], path
        assert shown.evaluate(FITS), path
        if look != "phone":  # what is there is the same in all; the colours are not
            assert serious(shown, RULES[look]) == [], path
    plant(shown)
    assert not shown.evaluate(FITS)
    assert any("Content Security Policy" in one for one in heard)
    if look != "phone":
        assert {one.partition(":")[0] for one in shown.evaluate(SERIOUS, RULES[look])} >= PLANTED[look]
    shown.context.close()


@pytest.mark.parametrize("look", LOOKS)
def test_an_imported_log_is_quiet_too(browser: Browser, imported: str, look: str) -> None:
    heard: list[str] = []
    shown = opened(browser, heard, **LOOKS[look])
    shown.goto(f"{imported}/view")
    shown.get_by_role("link", name=LOGGED).click()
    window = shown.url
    for page in ("window", "time", "cost", "tree", "dag", "artifacts"):
        shown.goto(window.replace("/window", f"/{page}"))
        if page == "cost":
            expect(shown.get_by_text("Read again after a fold")).to_be_visible()
        assert heard == [], page
        assert shown.evaluate(FITS), page
        if look != "phone":
            assert serious(shown, RULES[look]) == [], page
    shown.context.close()


def serious(shown: Page, rules: list[str] | None = None) -> list[str]:
    """Return what keeps people with a disability from using a page."""
    shown.evaluate(AXE.read_text("utf-8"))
    found: list[str] = shown.evaluate(SERIOUS, rules)
    return found


def plant(shown: Page) -> None:
    """Put into a page what the checks above must find."""
    shown.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=http://localhost:9/x><input id=bare>')")
    shown.evaluate("""() => {
        for (const one of document.querySelectorAll("h1, h2, p, a")) one.style.color = "#777";
        const wide = document.body.appendChild(document.createElement("div"));
        wide.style.cssText = "width: 3000px; height: 3px";
    }""")


def test_the_keyboard_is_enough(browser: Browser, served: str) -> None:
    heard: list[str] = []
    shown = opened(browser, heard, **LOOKS["light"])
    shown.goto(f"{served}/view")
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.textContent") == "Skip to the content"
    shown.keyboard.press("/")
    shown.keyboard.type("advisory lock")
    shown.keyboard.press("Enter")
    expect(shown.locator("mark").first).to_be_visible()
    tab_to(shown, "a[href*='/view/message']")
    shown.keyboard.press("Enter")
    expect(shown.locator("pre.said")).to_contain_text("advisory lock 7741")

    shown.goto(f"{served}/view/window?c={CONVERSATION}")
    tab_to(shown, "details.stack > summary")
    shown.keyboard.press("Enter")
    expect(shown.locator("details.stack details.stack").first).to_be_visible()
    tab_to(shown, "details.stack details.stack > summary")
    shown.keyboard.press("Enter")
    expect(shown.locator(".prose").first).to_be_visible()

    shown.goto(f"{served}/view/time?c={CONVERSATION}&at=36")
    for key, step in (("ArrowRight", "#37 Fold"), ("ArrowRight", "#38 Request"), ("ArrowLeft", "#37 Fold")):
        shown.keyboard.press(key)
        expect(shown.locator("#step h2")).to_have_text(step)
        expect(shown.locator("#where")).to_have_value(step.split()[0].removeprefix("#"))
    assert shown.url.endswith("at=37")
    shown.locator("#at").focus()
    shown.keyboard.press("ArrowRight")
    expect(shown.locator("#step h2")).to_have_text("#38 Request")
    shown.locator("#where").fill("100")
    shown.keyboard.press("Tab")
    expect(shown.locator("#step h2")).to_have_text("#100 Request")
    expect(shown.locator("#at")).to_have_value("100")
    for key, step in (("Shift+ArrowLeft", "#86 Fold"), ("Shift+ArrowRight", "#107 Fold")):
        shown.keyboard.press(key)
        expect(shown.locator("#step h2")).to_have_text(step)
    assert heard == []
    shown.context.close()


def test_three_questions_are_answered_within_a_few_clicks(browser: Browser, served: str, demo: Store) -> None:
    """From the list: what happened at turn 40 and why, what the last fold cost, which file was read again after it."""
    heard: list[str] = []
    shown = opened(browser, heard, **LOOKS["light"])
    shown.goto(f"{served}/view")
    shown.get_by_role("link", name="Harbour: the nightly import").click()
    shown.get_by_role("link", name="Time", exact=True).click()
    shown.get_by_label("Step", exact=True).fill("40")
    shown.keyboard.press("Enter")
    step = shown.locator("#step")
    expect(step).to_contain_text("#40 Request")
    expect(step).to_contain_text("Two containers were assigned to berth B-17")
    expect(step).to_contain_text("The allocator reads the free berths before it takes the advisory lock")
    sizes = " → ".join(f"{row.usage['prompt_tokens']:,}" for row in demo.journal(CONVERSATION)[38:40])
    expect(step).to_contain_text(f"What changed since the step before: {sizes} tokens. Prefix kept: grew.")
    shown.get_by_role("button", name="← Fold").click()
    expect(step).to_contain_text("Fold #37: the window is filling; 76 → 30 messages")

    shown.get_by_role("link", name="Cost", exact=True).click()
    folds = [row.number for row in demo.journal(CONVERSATION) if row.reason == "fold"]
    tile = shown.locator(".tile", has_text=f"The last of {len(folds)} folds cost")
    expect(tile).to_contain_text("$0.03")
    expect(tile.get_by_role("link", name=f"#{folds[-1]}")).to_be_visible()
    again = shown.get_by_role("row").filter(has_text="no, the window still held all").first
    file = again.get_by_role("cell").first.inner_text()
    again.get_by_role("link").last.click()
    expect(shown.locator("pre.said")).to_contain_text(f"{file}: part of harbour.")
    assert heard == []
    shown.context.close()


def test_a_click_on_the_map_compares_a_branch_with_the_one_it_leaves(browser: Browser, served: str) -> None:
    shown = opened(browser, [], **LOOKS["light"])
    shown.goto(served + place("/tree"))
    assert shown.get_by_text("From branch").count() == 0
    shown.locator("svg.rail").get_by_role("link", name="2 · side question").click()
    expect(shown.get_by_text("From branch 1 to branch 2:")).to_be_visible()
    shown.context.close()


def test_what_is_said_meanwhile_appears(browser: Browser) -> None:
    """The list and an open conversation ask for news by themselves; the browser's clock is moved on, nobody waits."""
    heard: list[str] = []
    with closing(open_store(":memory:")) as store, closing(Served(store, Access(keys=Keys({}), local=None))) as page:
        ids = store.append("first", [{"role": "user", "content": "the first question"}])
        row = JournalRow(reason="request", keep=0, added=({"m": ids[0]},), report={"context_length": 1_000})
        store.record_request("first", row)
        shown = opened(browser, heard, **LOOKS["light"])
        shown.clock.install()
        shown.goto(f"{page.address}/view")
        expect(shown.locator("a.title")).to_have_text(["the first question"])
        store.append("second", [{"role": "user", "content": "the second question"}])
        shown.clock.run_for(11_000)
        expect(shown.locator("a.title")).to_have_count(2)
        shown.get_by_role("link", name="the first question").click()
        expect(shown.locator("details.entry")).to_have_count(1)
        store.record_request("first", replace(row, keep=1, added=()))
        shown.clock.run_for(11_000)
        expect(shown.get_by_role("link", name="1 new step since this page was made")).to_be_visible()
        shown.context.close()
    assert heard == []


def test_a_conversation_is_folded_pinned_and_deleted_by_hand(browser: Browser) -> None:
    heard: list[str] = []
    with closing(open_store(":memory:")) as store:
        said: list[Any] = [
            {"role": "user" if at % 2 == 0 else "assistant", "content": f"words {at} " + "of the harbour " * 60}
            for at in range(60)
        ]
        ids = store.append("talk", [*said, {"role": "user", "content": "go on"}])
        sent = tuple({"m": id_} for id_ in ids)
        row = JournalRow(reason="request", keep=0, added=sent, report={"context_length": 8_000})  # type: ignore[arg-type]
        store.record_request("talk", row)
        actions = Actions(store=store, config=Config.coerce({}))
        with closing(Served(store, Access(keys=Keys({}), local=None), actions)) as page:
            shown = opened(browser, heard, **LOOKS["light"])
            shown.goto(f"{page.address}/view/message?c=talk&id=m1")
            shown.get_by_role("link", name="Pin…").click()
            shown.get_by_role("button", name="Pin").click()
            expect(shown.get_by_role("heading", name="Done")).to_be_visible()
            assert store.pins("talk") == ("m1",)

            shown.goto(f"{page.address}/view/window?c=talk")
            shown.get_by_role("link", name="Fold now…").click()
            assert serious(shown) == []
            shown.get_by_label("What to keep most of").fill("the harbour")
            shown.get_by_role("button", name="Fold").click()
            expect(shown.locator("main")).to_contain_text("folded:")
            shown.get_by_role("link", name="Back to the conversation").click()
            expect(shown.locator("details.stack").first).to_be_visible()
            info = store.info("talk")
            assert info is not None
            kept = {id_ for entry in window_now(store, info).entries for id_ in entry.ids}
            assert "m1" in kept
            assert not kept >= {"m2", "m3", "m4", "m5"}

            shown.get_by_role("link", name="Export…").click()
            with shown.expect_download() as download:
                shown.get_by_role("button", name="Download").click()
            assert len(download.value.path().read_text("utf-8").splitlines()) > 61

            shown.goto(f"{page.address}/view/act?c=talk&what=delete")
            shown.get_by_role("button", name="Delete").click()
            expect(shown.locator("main")).to_contain_text("deleted")
            assert store.info("talk") is None
            shown.context.close()
    assert heard == []


def test_a_page_of_another_site_gets_nothing(browser: Browser, demo: Store) -> None:
    """Neither a picture, whose time would tell something, nor a frame, nor an answer: the browser says who asks."""
    with closing(Served(demo, Access(keys=Keys({}), local=None))) as served:
        address = f"{served.address}/view/search?q=lock"
        html = f'<!doctype html><img src="{address}"><iframe src="{address}"></iframe>'
        html += f'<form action="{served.address}/view/sign-out" method="post"></form>'

        class Elsewhere(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(html.encode())

        with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            page = browser.new_context().new_page()
            page.goto(f"http://localhost:{server.server_port}/", wait_until="networkidle")
            asked = "address => fetch(address, {mode: 'no-cors'}).then(() => 'answered', () => 'kept back')"
            assert page.evaluate(asked, address) == "kept back"
            page.evaluate("document.forms[0].submit()")
            expect(page.locator("main")).to_contain_text("This address is not served here.")
            page.context.close()
            server.shutdown()
        foreign = {(wanted, status) for wanted, status in served.answered if wanted not in {"style", "script", "font"}}
        assert {("image", 403), ("iframe", 403), ("empty", 403), ("document", 403)} <= foreign
        assert {status for wanted, status in foreign if wanted != "image"} == {403}


def tab_to(shown: Page, wanted: str) -> None:
    """Press the tabulator until something like this has the focus."""
    for _ in range(60):
        shown.keyboard.press("Tab")
        if shown.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
            return
    raise AssertionError(f"{wanted} is not reached")


def test_hostile_text_does_nothing_in_the_browser(browser: Browser) -> None:
    heard: list[str] = []
    with hostile_store(50_000) as store, closing(Served(store, Access(keys=Keys({}), local=None))) as page:
        shown = opened(browser, heard, **LOOKS["light"])
        shown.on("dialog", lambda dialog: heard.append(dialog.message))
        shown.goto(f"{page.address}/view")
        shown.locator("a.title").click()
        for number in range(shown.locator("details.entry").count()):
            shown.locator("details.entry > summary").nth(number).click()
        expect(shown.locator("pre.said").first).to_be_visible()
        shown.wait_for_load_state("networkidle")
        assert "<script>alert(1)</script>" in shown.inner_text("main")
        assert shown.locator("main script, main img, main b").count() == 0
        shown.context.close()
    assert heard == []


def test_one_signs_in_with_a_key_and_the_key_stays_secret(browser: Browser) -> None:
    key, heard = new_key(), list[str]()
    with closing(open_store(":memory:")) as store:
        store.append("talk", [{"role": "user", "content": "my own plan"}], owner="ann")
        with closing(Served(store, Access(keys=Keys({"ann": hashed(key)})))) as page:
            shown = opened(browser, heard, **LOOKS["light"])
            addresses: list[str] = []
            shown.on("request", lambda asked: addresses.append(asked.url))
            shown.goto(f"{page.address}/view/window?c=talk")
            assert serious(shown) == []
            shown.keyboard.type(key)
            shown.keyboard.press("Enter")
            expect(shown.locator("a.title")).to_have_text("my own plan")
            assert shown.evaluate("document.cookie") == ""
            assert not any(key in address for address in addresses)
            shown.get_by_role("button", name="Sign out").click()
            expect(shown.locator("h1")).to_have_text("Sign in")
            shown.goto(f"{page.address}/view")
            expect(shown.locator("h1")).to_have_text("Sign in")
            shown.context.close()
    assert heard == []
