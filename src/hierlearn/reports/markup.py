"""Markup: text and data into HTML so that no name or text of the data can act as markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# What no page can hold, and what would reverse the text that follows a name.
NOT_XML = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)


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


def network_text(network: Mapping[str, Any]) -> str:
    """Return a network's name and options as text."""
    name = network.get("name") or "chosen from the data"
    options = as_text(network.get("options") or {})
    return f"{name}, {options}" if options else name


def pairs_table(pairs: Mapping[str, object]) -> str:
    """Return a table of names and values."""
    rows = "".join(
        f'<tr><th scope="row">{safe(name.replace("_", " "))}</th><td>{safe(value)}</td></tr>'
        for name, value in pairs.items()
        if value not in ("", None)
    )
    return f'<div class="wide"><table class="pairs"><tbody>{rows}</tbody></table></div>'


def as_text(value: Any) -> str:
    """Return plain values as text: ``epochs 100, patience 10``."""
    if isinstance(value, dict):
        found = [f"{name.replace('_', ' ')} {as_text(one)}".strip() for name, one in value.items()]
        return ", ".join(found)
    if isinstance(value, (list, tuple)):
        return ", ".join(as_text(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def heights(highest: int) -> str:
    """Return the choices of a height for a select element, the worst first."""
    found = [f'<option value="{h}">wrong by height {h}</option>' for h in range(highest, 0, -1)]
    return '<option value="">all, the worst first</option>' + "".join(found)


def asset(name: str, package: str = "hierlearn.reports") -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def page_script(*names: str) -> str:
    """Return script files as one script, in whose scope they all are."""
    return '"use strict";\n(() => {\n' + "\n".join(asset(name) for name in names) + "})();\n"


def script_policy(script: str) -> str:
    """Return the source of a content security policy that runs this script and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
