"""What of a web page is not its content: navigation, banners, hidden elements, scripts.

Dropping is careful: words in class names only count with many links or little text, and a page that would be left
empty is read whole.
"""

from __future__ import annotations

import re
from typing import Any

_DROPPED = """
script style noscript template head svg iframe object embed canvas audio video map select button textarea
datalist meta link base frameset noframes source track param progress meter dialog
"""
DROPPED = frozenset(_DROPPED.split())
_ROLES = {"navigation", "banner", "contentinfo", "search", "dialog", "alertdialog", "menu", "menubar", "toolbar"}
_LINKS = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|breadcrumbs?|sidebar|pagination|pager|toc|navbox|share|social|footer|header"
    r"|related|skip|jump|topbar|toolbar|catlinks|tags?|languages?|catalog|crumb|toplinks?)(?:$|[\s_-])",
    re.IGNORECASE,
)
_NOTICES = re.compile(
    r"(?:cookie|consent|gdpr|newsletter|subscribe)s?[\w-]*(?:banner|bar|notice|popup|modal|overlay|dialog|message|signup"
    r"|consent|form)|(?:^|[\s_-])(?:ads?|advert\w*|popup)(?:$|[\s_-])",
    re.IGNORECASE,
)
_ASIDES = re.compile(r"note|tip|warning|caution|danger|callout|admonition|info", re.IGNORECASE)
_ALWAYS = re.compile(
    r"(?:^|\s)(?:mw-editsection|headerlink|footnote-backref|noprint|printfooter|mw-jump-link|mw-empty-elt|anchorjs-link"
    r"|sr-only|visually-?hidden|screen-reader-(?:text|only)|skip-link|skip-to-content|vector-page-toolbar|vector-toc|navbox)(?:$|\s)"
)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
MAIN_SHARE = 0.8
"""Of a page's shown text, links apart, that an element holds which is read instead of the page."""
LINKED_SHARE = 0.4
"""The same of the text with links: a list of many links is content too."""
_SECTIONING = ("main", "article", "section")
_MEASURED = "data-rag-measured"


def is_hidden(element: Any) -> bool:
    """Whether a browser would not show the element."""
    attributes = element.attrib
    if "hidden" in attributes and attributes["hidden"] != "until-found":
        return True
    return attributes.get("aria-hidden") == "true" or bool(_HIDDEN.search(attributes.get("style", "")))


def is_decoration(element: Any) -> bool:
    """Whether the element only serves the page's own handling: edit links, anchors, ways back, words for the blind."""
    names = element.get("class")
    return bool(names) and bool(_ALWAYS.search(names))


def is_boilerplate(element: Any) -> bool:
    """Whether a block element is page furniture."""
    tag = element.tag
    names = f"{element.get('class', '')} {element.get('id', '')}".strip()
    if tag == "nav" or element.get("role") in _ROLES:
        return True
    if tag in ("header", "footer", "aside"):
        inside = any(ancestor.tag in _SECTIONING for ancestor in element.iterancestors())
        if tag == "aside":
            return not (inside or _ASIDES.search(names)) or link_density(element) > 0.5
        return not inside and not (tag == "header" and _holds_title(element))
    if not names or tag in ("html", "body", "main", "article", "table", "h1", "h2", "h3"):
        return False
    if _NOTICES.search(names):
        return text_length(element) < 2000
    return bool(_LINKS.search(names)) and link_density(element) > 0.5


def main_content(body: Any) -> Any:
    """The element that holds the page's content: main, a single article, or body itself.

    What else is shown must be next to nothing, links apart; the page's title is moved into the content if it stands
    outside.
    """
    candidates = body.xpath(".//main | .//*[@role='main']") or body.xpath(".//article")
    if len(candidates) != 1:
        return body
    (prose, links), (all_prose, all_links) = _shown_lengths(candidates[0]), _shown_lengths(body)
    if prose < MAIN_SHARE * all_prose or prose + links < LINKED_SHARE * (all_prose + all_links):
        return body
    content, titles = candidates[0], body.findall(".//h1")
    if len(titles) == 1 and _is_shown(titles[0]) and content not in titles[0].iterancestors():
        header = next(titles[0].iterancestors("header"), None)
        title = titles[0] if header is None or content in header.iter() else header
        title.tail, content.text = content.text, None
        content.insert(0, title)
    return content


def _is_furniture(element: Any) -> bool:
    return element.tag in DROPPED or is_hidden(element) or is_decoration(element) or is_boilerplate(element)


def _is_shown(element: Any) -> bool:
    return not any(map(_is_furniture, (element, *element.iterancestors())))


def _shown_lengths(root: Any) -> tuple[int, int]:
    """Characters of an element's text that is no furniture of the page: (outside links, in links)."""
    prose, links, waiting = 0, 0, [root]
    while waiting:
        element = waiting.pop()
        prose += sum(_characters(text) for text in (element.text, *(child.tail for child in element)))
        shown = [child for child in element if not _is_furniture(child)]
        links += sum(text_length(child) for child in shown if child.tag == "a")
        waiting.extend(child for child in shown if child.tag != "a")
    return prose, links


def measure(root: Any) -> None:
    """Note in every element the characters of its text, of its links' text, and its h1s, each counted once."""
    sums: dict[Any, tuple[int, int, int]] = {}
    for element in reversed(list(root.iter())):
        within = [sums[child] for child in element]
        own = sum(_characters(text) for text in (element.text, *(child.tail for child in element)))
        length = own + sum(each[0] for each in within)
        linked = length if element.tag == "a" else sum(each[1] for each in within)
        sums[element] = length, linked, (element.tag == "h1") + sum(each[2] for each in within)
        element.set(_MEASURED, " ".join(map(str, sums[element])))


def text_length(element: Any) -> int:
    """Characters of text, white space not counted."""
    return _measured(element)[0]


def link_density(element: Any) -> float:
    """Share of the text that stands in links."""
    length, linked, _ = _measured(element)
    return linked / length if length else 1.0


def _holds_title(header: Any) -> bool:
    """A page header with the only h1 of the page is part of the content."""
    return _measured(header)[2] == _measured(header.getroottree().getroot())[2] == 1


def _measured(element: Any) -> tuple[int, int, int]:
    length, linked, titles = map(int, element.get(_MEASURED).split())
    return length, linked, titles


def _characters(text: str | None) -> int:
    return sum(map(len, text.split())) if text else 0
