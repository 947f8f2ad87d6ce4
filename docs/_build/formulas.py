"""A hook of mkdocs: formulas become MathML while the site is built, so that a page needs no script."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>div|span) class="arithmatex">\\[\[(](?P<tex>.*?)\\[\])]</(?P=tag)>', re.DOTALL
)


def on_page_content(content: str, **_: Any) -> str:
    """Return the page with every formula as MathML."""
    return FORMULA.sub(to_mathml, content)


def to_mathml(match: re.Match[str]) -> str:
    """Return a formula as MathML; one that stands alone scrolls where the screen is narrow."""
    display = "block" if match["tag"] == "div" else "inline"
    tex = html.unescape(match["tex"]).strip()
    made = str(convert(tex, display=display))
    if "\\" in re.sub(r"<[^>]*>", "", made):  # a command that the converter does not know
        raise ValueError(f"this formula cannot be converted: {tex}")
    return f'<div class="formula">{made}</div>' if display == "block" else made
