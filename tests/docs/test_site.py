"""What the site adds to its pages: search that works where the site is opened as files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.docs.console import ROOT
from tests.needs import needs

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = needs(BROWSER is not None, "Chromium", "apt-get install chromium")
PAGE = """<!doctype html><body><pre id="seen"></pre><script src="iframe-worker.js"></script><script>
const worker = new Worker("inner/worker.js");
worker.addEventListener("message", ({data}) => { document.getElementById("seen").textContent += `${data} `; });
worker.postMessage(1);
worker.postMessage(20);
</script></body>"""
#: As the site's: it keeps what it was told, and answers later.
WORKER = 'let sum = 0; addEventListener("message", async ({data}) => { const more = await data; sum += more; postMessage(`sum ${sum}`); });'


def test_a_page_that_was_opened_as_a_file_has_a_worker(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "worker.js").write_text(WORKER)
    (tmp_path / "page.html").write_text(PAGE)
    shutil.copy(ROOT / "docs" / "iframe-worker.js", tmp_path)
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=4000", "--dump-dom")
    command = [str(BROWSER), *flags, f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert '<pre id="seen">sum 1 sum 21 </pre>' in done.stdout


def test_the_site_takes_the_worker_from_here_and_nothing_from_elsewhere() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "polyfills: [iframe-worker.js]" in text  # a polyfill of another name lets the plugin load its own from a server
    assert "plugins: [search, offline]" in text
