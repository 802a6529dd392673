"""The page in a real browser: no errors, no requests, the slider moves the numbers."""

import shutil

import pytest
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from toy import DIGITS, halves

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = ("chromium", "chromium-browser", "chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    with playwright.sync_playwright() as tools:
        try:
            found = tools.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield found
        found.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    X, X_test, y, y_test = halves(DIGITS)
    forest = RandomForestClassifier(60, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_nodes=0.1)
    path = tmp_path_factory.mktemp("page") / "report.html"
    small.report(X_test, y_test).save(path)
    return small, path


@pytest.fixture
def opened(browser, page_file):
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file[1].as_uri())
    yield page, page_file[0]
    page.close()
    assert said == []
    assert [url for url in asked if not url.startswith("file:")] == []


def figures(page):
    return {
        cell.get_attribute("data-figure"): cell.inner_text()
        for cell in page.query_selector_all("[data-figure]")
    }


def wait_for(page, condition):
    """Playwright's own wait evaluates text in the page, which the page's policy forbids."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


def markers(page):
    return [
        (float(m.get_attribute("cx")), float(m.get_attribute("cy")))
        for m in page.query_selector_all(".sb-marker")
    ]


def test_the_slider_moves_the_numbers(opened):
    page, small = opened
    slider = page.locator("#sb-size")
    kept, at_first = figures(page), markers(page)
    curve = small.path_
    assert kept["share"].endswith("(kept)")
    slider.focus()
    page.keyboard.press("Home")
    assert figures(page)["share"] == f"{100 * curve.share[0]:.3g}%"
    page.keyboard.press("ArrowRight")
    assert figures(page)["share"] == f"{100 * curve.share[1]:.3g}%"
    assert f"{int(curve.n_nodes[1]):,} nodes" in slider.get_attribute("aria-valuetext")
    page.keyboard.press("End")
    most = figures(page)
    assert most["members"] == "60"
    assert most["share"] == "100%"
    assert most["change"].startswith(f"{curve.ratio[-1] - 1.0:+.1%} ± ")
    assert markers(page)[0][0] > at_first[0][0]
    page.locator("#sb-back").click()
    assert figures(page) == kept
    assert markers(page) == at_first


def test_print_unfolds_with_and_without_the_script_and_in_its_own_colours(opened):
    page, _ = opened
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(colour) == "rgb(20, 24, 29)"
    page.emulate_media(color_scheme="light")
    seen = "[...document.querySelectorAll('details table')].map(e => e.checkVisibility())"
    assert not any(page.evaluate(seen))
    page.evaluate("document.querySelector('details').open = true")
    folds = "[...document.querySelectorAll('details')].map(e => e.open)"
    for event, unfolded in (("beforeprint", [True] * 3), ("afterprint", [True] + [False] * 2)):
        page.evaluate(f"window.dispatchEvent(new Event('{event}'))")
        assert page.evaluate(folds) == unfolded
    page.emulate_media(media="print", color_scheme="dark")
    assert all(page.evaluate(seen))
    assert page.locator("#sb-size").is_hidden()
    colour = "getComputedStyle(document.querySelector('.sb-better')).color"
    assert page.evaluate(colour) == "rgb(20, 113, 59)"


def test_the_browser_refuses_to_fetch_and_to_run_anything_else(browser, page_file):
    page = browser.new_page()
    stopped, answered = [], []
    page.on("requestfailed", lambda request: stopped.append((request.url, request.failure)))
    page.goto(page_file[1].as_uri())
    page.on("response", lambda response: answered.append(response.url))
    refused = page.evaluate("""async () => {
      const refused = [];
      document.addEventListener("securitypolicyviolation", (e) =>
        refused.push(e.effectiveDirective));
      const image = document.createElement("img");
      image.src = "https://example.invalid/a.png";
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(image, script);
      await new Promise((done) => setTimeout(done, 200));
      return [refused.sort(), window.ran === true];
    }""")
    assert refused == [["img-src", "script-src-elem"], False]
    assert stopped == [("https://example.invalid/a.png", "csp")]
    assert answered == []
    page.close()


def test_what_is_drawn_fits_and_what_a_screen_reader_finds(opened):
    page, _ = opened
    cut = """() => [...document.querySelectorAll("svg.sb-chart text")].filter((t) => {
      const a = t.getBoundingClientRect(), b = t.closest("svg").getBoundingClientRect();
      return a.left < b.left - 0.5 || a.right > b.right + 0.5;
    }).map((t) => t.textContent)"""
    assert page.evaluate(cut) == []
    assert page.get_by_role("slider", name="Other sizes").count() == 1
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("img").count() == 2
    assert page.get_by_role("table").count() >= 2
    for image in page.get_by_role("img").all():
        assert image.evaluate("e => e.querySelector('title').textContent.length") > 5
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(cut) == []
    size = """(t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a"""
    assert page.locator("svg.sb-chart text").first.evaluate(size) > 9.0  # readable on a phone


def test_the_keyboard_reaches_everything_and_scrolls_wide_tables(opened):
    page, _ = opened
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"sb-size", "sb-back", "SUMMARY"} <= reached
    stops = page.locator(".sb-scroll[tabindex]:visible")
    boxes = "[...document.querySelectorAll('.sb-scroll[tabindex]')]"
    for width, some in ((1280, "=== 0"), (390, "> 0")):
        page.set_viewport_size({"width": width, "height": 800})
        wait_for(page, f"{boxes}.filter((box) => box.checkVisibility()).length {some}")
    assert page.get_by_role("region", name="Each class, before → after").count() == 1
    stops.first.focus()
    page.keyboard.press("ArrowRight")
    wait_for(page, "document.activeElement.scrollLeft > 0")
    head = stops.first.locator("tbody th").first
    assert head.bounding_box()["x"] >= 0  # which row it is stays in sight


def test_without_scripts_nothing_dead_is_shown(browser, page_file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file[1].as_uri())
    assert page.locator("#sb-size").is_hidden()
    assert page.locator("#sb-back").is_hidden()
    assert page.locator("[data-figure=share]").inner_text().endswith("(kept)")
    context.close()


def test_text_is_readable_in_both_modes(opened):
    """Contrast of text on its background is at least 4.5 to 1 (WCAG AA)."""
    page, _ = opened
    script = """() => {
      const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(Number)
          .map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const behind = (e) => { for (; e; e = e.parentElement) {
          const c = getComputedStyle(e).backgroundColor;
          if (!c.startsWith('rgba(0, 0, 0, 0')) return c; } return 'rgb(255,255,255)'; };
      let worst = 21;
      for (const e of document.querySelectorAll('p,td,th,li,a,b,span,dt,dd,h1,h2,caption,pre')) {
        const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
        worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
      }
      return worst; }"""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(script) >= 4.5, scheme
