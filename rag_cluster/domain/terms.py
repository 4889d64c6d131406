"""What lexical overlap counts, in Chinese and English: the terms of a text. Standard library only.

English: lower-case words without stop words, lightly stemmed. Numbers: without thousands separators. Chinese: character
bigrams (a lone character is its own term), because words are not written apart. Used by the extractive answerer, by
refusal and by the check of citations, which must agree on what "the same word" means. `keywords` are another thing:
what is looked for in a text as it stands.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_TOKEN = re.compile(rf"\d+(?:[.,]\d+)*|[{CJK}]+|[^\W\d_{CJK}]+")
_WORD = re.compile(rf"[{CJK}]+|[^\W_{CJK}]+(?:(?:[-./&_]|(?<=\d),(?=\d))[^\W_{CJK}]+)*(?:\+\+|#)?")
_CJK = re.compile(f"[{CJK}]")
_LATIN_WORD = re.compile(r"[A-Za-z]+")
_CHINESE_PARTICLES = re.compile("[的了是吗呢吧着]")
_CHINESE_QUESTION = re.compile(
    "请?(?:介绍|说明|解释|描述)一下|请(?:介绍|说明|解释|描述|问)|请?告诉我|为什么|为何|什么时候|什么|多少|多久|多大|多长|多高|哪一年|哪年|哪些|哪个|哪里|哪儿|哪位|哪种|哪|谁|如何|怎么样|怎么|怎样"
    "|是否|是不是|有没有|几个|几年|几|何时|何地|何种|何"
)
_ENGLISH_QUESTION = re.compile(  # not of names as "Bill of Lading" and "What-if", nor "Can" of "Can总线"
    r"\b(?<!-)(?:what|who|whom|whose|when|where|which|how|why|is|are|was|were|does|do|did|can|could|should|would|will"
    r"|has|have|please|(?:tell|give|show|list|explain|describe|compare|summari[sz]e) (?:me|us|the|all|both))\b(?!-)",
    re.IGNORECASE,
)
_ENGLISH = (
    "a about after all also am an and any are as at be because been before being between both but by can could did do "
    "does doing during each for from had has have having he her here hers him his how i if in into is it its itself "
    "just many me more most much my no nor not of off on once only or other our out over own same she should so some "
    "such than that the their them then there these they this those through to too under until up upon us very was we "
    "were what when where which while who whom whose why will with would you your s t re ve ll d m"
)
_ENGLISH_STOP = frozenset(_ENGLISH.split())
_ENGLISH_REQUEST = frozenset(("tell", "explain", "describ", "pleas", "list", "give"))


def is_cjk(text: str) -> bool:
    """Whether a text holds any Chinese, Japanese or Korean character."""
    return _CJK.search(text) is not None


def is_number(term: str) -> bool:
    """Whether a term is a number."""
    return term[:1].isdigit()


def language(text: str) -> str:
    """ "zh" or "en": the one in which something is asked or said of what the other merely names ("如何配置 Ray Serve").

    Where both or neither have such words, "zh" when Chinese characters outweigh Latin words.
    """
    latin = _LATIN_WORD.findall(text)
    in_chinese = _CHINESE_QUESTION.search(text) is not None or _CHINESE_PARTICLES.search(text) is not None
    # Not the IS or WHO of a name.
    in_english = any(not found[0].isupper() for found in _ENGLISH_QUESTION.finditer(text))
    if in_chinese != in_english:
        return "zh" if in_chinese else "en"
    return "zh" if len(_CJK.findall(text)) > len(latin) else "en"


def speaks(language: str, text: str) -> bool:
    """Whether a text holds a noticeable share (a twentieth) of a language, "zh" or "en"."""
    chinese = len(_CJK.findall(text))
    latin = len(_LATIN_WORD.findall(text))
    return (chinese if language == "zh" else latin) * 20 >= chinese + latin


def normalize(text: str) -> str:
    """NFKC, lower case, Latin accents removed."""
    text = unicodedata.normalize("NFKC", text).lower()
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(c for c in decomposed if not "\u0300" <= c <= "\u036f"))


def _plain_number(number: str) -> str:
    return re.sub(r",(?=\d{3}(?:\D|$))", "", number)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A light English stem: plural, -ed, -ing and a final e go; "invades", "invaded", "invading" meet."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and word[-2] not in "sui":
        word = word[:-1]
    for suffix in ("ing", "ed"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: -len(suffix)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def terms(text: str) -> list[str]:
    """Terms in order, with repeats."""
    return _terms(normalize(text))


def question_terms(question: str) -> list[str]:
    """Distinct terms of a question, without what asks ("what", "tell me", "多少"), in order."""
    found = _terms(_CHINESE_QUESTION.sub(" ", normalize(question)))
    return [term for term in dict.fromkeys(found) if term not in _ENGLISH_REQUEST]


def keywords(question: str) -> list[str]:
    """Distinct words of a question that could stand in a text as they are: without what asks and what only binds.

    NFKC in lower case with their accents, not stemmed; codes whole ("iso9001", "h2o", "4.0"); Chinese runs between
    particles. A lone letter or Chinese character is none.
    """
    found: list[str] = []
    for word in _words(_CHINESE_QUESTION.sub(" ", unicodedata.normalize("NFKC", question).lower())):
        if _CJK.match(word):
            found.extend(piece for piece in _CHINESE_PARTICLES.split(word) if len(piece) > 1)
        elif word.isdigit() or (len(word) > 1 and word not in _ENGLISH_STOP and word not in _ENGLISH_REQUEST):
            found.append(word)
    return list(dict.fromkeys(found))


def word_count(text: str) -> int:
    """How many words a text has, two Chinese characters counting as one."""
    words = _words(unicodedata.normalize("NFKC", text))
    return sum((len(word) + 1) // 2 if _CJK.match(word) else 1 for word in words)


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if any(map(str.isdigit, word)):
            yield word
        else:  # two words, not a code
            yield from re.split("[-/]", word)


def _terms(normalized: str) -> list[str]:
    out: list[str] = []
    for token in _TOKEN.findall(normalized):
        if token[0].isdigit():
            out.append(_plain_number(token))
        elif _CJK.match(token):
            out.extend(_chinese(token))
        elif token not in _ENGLISH_STOP:
            out.append(stem(token))
    return out


def _chinese(run: str) -> list[str]:
    out: list[str] = []
    for piece in _CHINESE_PARTICLES.split(run):
        if len(piece) == 1:
            out.append(piece)
        else:
            out.extend(piece[i : i + 2] for i in range(len(piece) - 1))
    return out
