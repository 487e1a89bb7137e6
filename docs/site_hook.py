"""What mkdocs does besides building docs/: it takes in the pages that lie elsewhere, and turns links to them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
#: Page outside docs/ -> where it stands in the site.
TAKEN = {name: name for name in ("SECURITY.md", "CHANGES.md", "CONTRIBUTING.md")} | {
    "README.md": "about.md",
    "configs/data/README.md": "shipped-data.md",
}
#: What a page may load: nothing from elsewhere.
_LOADED = re.compile(r"<(?:script|link rel=\"(?:stylesheet|preload)\"|img)\b[^>]*?(?:src|href)=\"(?:https?:)?//[^\"]*")
_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    for source, target in TAKEN.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page whose links hold in the site."""
    here = page.file.src_uri
    at = next((source for source, target in TAKEN.items() if target == here), f"docs/{here}")

    def turned(link: re.Match[str]) -> str:
        goal = posixpath.normpath(posixpath.join(posixpath.dirname(at), link[2]))
        place = TAKEN.get(goal) or (goal.removeprefix("docs/") if goal.startswith("docs/") else None)
        if place is None:
            return link[0] if (ROOT / goal).suffix == ".md" else link[0].partition("](")[0]
        return f"{link[1]}{posixpath.relpath(place, posixpath.dirname(here) or '.')}{link[3] or ''}{link[4]}"

    return _LINK.sub(turned, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Return the page; one that would load something from elsewhere ends the build."""
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {found[0]}")
    return output
