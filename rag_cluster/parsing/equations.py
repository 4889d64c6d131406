"""OMML equations as one readable line: fractions with a slash, scripts with ^ and _, roots and sums by their signs."""

from __future__ import annotations

from typing import Any

from rag_cluster.parsing.ooxml import find, local_name, qn

_ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0305": "bar", "\u20d7": "vec", "\u0307": "dot", "\u0308": "ddot"}
_PROPERTIES = frozenset({"rPr", "ctrlPr", "oMathParaPr", "argPr"})


def equation_text(element: Any) -> str:
    """Text of m:oMath, m:oMathPara or any piece of them."""
    return " ".join(_text(element).split())


def _text(element: Any) -> str:
    if element is None:
        return ""
    name = local_name(element)
    if name in _PROPERTIES or (name.endswith("Pr") and name != "oMathPara"):
        return ""
    if name in ("t", "delText"):
        return element.text or ""
    rule = _RULES.get(name)
    return rule(element) if rule else "".join(_text(child) for child in element)


def _part(element: Any, name: str) -> str:
    return _text(find(element, f"m:{name}")).strip()


def _value(element: Any, path: str, default: str) -> str:
    found = find(element, path)
    return default if found is None else str(found.get(qn("m:val"), ""))


def _group(text: str) -> str:
    return text if len(text) <= 1 or text.isalnum() or _bracketed(text) else f"({text})"


def _bracketed(text: str) -> bool:
    return text[0] == "(" and text[-1] == ")" and text.count("(") == 1


def _script(mark: str, text: str) -> str:
    return f"{mark}{text if len(text) <= 1 else '{' + text + '}'}" if text else ""


def _fraction(element: Any) -> str:
    if _value(element, "m:fPr/m:type", "bar") == "noBar":
        return f"{_part(element, 'num')} over {_part(element, 'den')}"
    return f"{_group(_part(element, 'num'))}/{_group(_part(element, 'den'))}"


def _scripts(element: Any) -> str:
    return _group(_part(element, "e")) + _script("_", _part(element, "sub")) + _script("^", _part(element, "sup"))


def _before(element: Any) -> str:
    return _script("_", _part(element, "sub")) + _script("^", _part(element, "sup")) + _part(element, "e")


def _root(element: Any) -> str:
    return f"{_script('^', _part(element, 'deg'))}√({_part(element, 'e')})"


def _nary(element: Any) -> str:
    sign = _value(element, "m:naryPr/m:chr", "∫")
    limits = _script("_", _part(element, "sub")) + _script("^", _part(element, "sup"))
    return f"{sign}{limits} {_part(element, 'e')}"


def _delimited(element: Any) -> str:
    begin, end = _value(element, "m:dPr/m:begChr", "("), _value(element, "m:dPr/m:endChr", ")")
    middle = _value(element, "m:dPr/m:sepChr", "|")
    return begin + middle.join(_text(child).strip() for child in element.findall(qn("m:e"))) + end


def _function(element: Any) -> str:
    return f"{_part(element, 'fName')} {_part(element, 'e')}"


def _matrix(element: Any) -> str:
    rows = (", ".join(_text(cell).strip() for cell in row.findall(qn("m:e"))) for row in element.findall(qn("m:mr")))
    return "[" + "; ".join(rows) + "]"


def _lines(element: Any) -> str:
    return "; ".join(_text(child).strip() for child in element.findall(qn("m:e")))


def _accent(element: Any) -> str:
    sign = _value(element, "m:accPr/m:chr", "\u0302")
    return f"{_ACCENTS.get(sign, sign)}({_part(element, 'e')})"


def _limit(mark: str) -> Any:
    return lambda element: _part(element, "e") + _script(mark, _part(element, "lim"))


_RULES: dict[str, Any] = {
    "f": _fraction,
    "sSup": _scripts,
    "sSub": _scripts,
    "sSubSup": _scripts,
    "sPre": _before,
    "rad": _root,
    "nary": _nary,
    "d": _delimited,
    "func": _function,
    "m": _matrix,
    "eqArr": _lines,
    "acc": _accent,
    "limLow": _limit("_"),
    "limUpp": _limit("^"),
}
