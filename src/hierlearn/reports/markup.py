"""Markup: text and data into HTML so that no name or text of the data can act as markup."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from hierlearn.hierarchy.draw import NOT_XML


def safe(value: object) -> str:
    """Return text for HTML or SVG, between tags or in quotes."""
    return escape(clean(str(value)))


def clean(value: str) -> str:
    """Return text without the characters that no page can hold."""
    return NOT_XML.sub("\ufffd", value)


def embed(data: Any) -> str:
    """Return data as JSON for a script element; a ``<`` in it cannot end the element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return clean(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(heads: list[str], rows: list[list[str]], *, kind: str = "") -> str:
    """Return an HTML table of cells that are markup already; the first of a row names it."""
    lines = [f'<div class="wide"><table class="{safe(kind)}"><thead><tr>']
    lines += [f'<th scope="col">{head}</th>' for head in heads]
    lines.append("</tr></thead><tbody>")
    for first, *rest in rows:
        cells = "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])
