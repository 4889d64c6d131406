"""Bytes of unknown encoding -> text, with priors that hold for short Chinese and Japanese texts.

    BOM -> UTF-8 -> UTF-16 without BOM -> declared -> East Asian multi-byte by likelihood -> charset-normalizer

charset-normalizer alone guesses wrongly on short texts (92 bytes of GBK), and GBK bytes are nearly always valid
Big5 or EUC-KR too; how common the decoded characters are decides.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from functools import lru_cache

SAMPLE = 64 * 1024
REPLACEMENT = "\ufffd"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What the names mean in the wild (as the WHATWG encoding standard has it).
_SUPERSETS = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "cp936": "gb18030",
    "shift_jis": "cp932",
    "iso8859-1": "cp1252",
    "latin-1": "cp1252",
    "ascii": "cp1252",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-9": "cp1254",
}
_MULTI_BYTE = {"gb18030", "cp932", "euc_jp", "big5hkscs", "cp949", "iso2022_jp", "johab"}
_COMMON_CHINESE = set(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多经"
    "么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全"
    "三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度门任"
    "常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建务做接必"
    "号项目录据值设备单价格编码称明说址址姓名日期时间区市县省年月日元件"
)
_COMMON_TRADITIONAL = set(
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用道行所然家種事成方多經"
    "麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心她本前開但因只從想實日軍者意無力它與長把機十民第公此已工使情明性知全"
    "關點業將兩間問並應戰頭體產號項錄據設備單價編碼稱區縣資訊網路電話檔案"
)
_COMMON_KOREAN = set(
    "안녕세요김박계름이다는을의에가고하지도사한로를은기대어시자리나서인아스일제해부정전그보수공과라여주장원만동국적으들성있것"
)
_COMMON: dict[str, set[str]] = {
    "gb18030": _COMMON_CHINESE,
    "big5hkscs": _COMMON_TRADITIONAL,
    "cp949": _COMMON_KOREAN,
}
_KANA = {chr(code) for code in range(0x3041, 0x30FF)}
_COMMON_WIDE = _COMMON_CHINESE | _COMMON_TRADITIONAL | _COMMON_KOREAN | _KANA | set("，。、：；")


def decode_text(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """(text, encoding). Never fails; bytes that fit no encoding become U+FFFD. declared: what the file or HTTP says."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            return data.decode(name, "replace").lstrip("\ufeff"), name
    if (wide := _wide(data)) is not None:
        return data.decode(wide, "replace"), wide
    stated = known(declared) if declared else None
    # Bytes that are valid UTF-8 by chance are rare; single-byte encodings accept everything, so they come second.
    order = (stated, "utf-8") if stated in _MULTI_BYTE else ("utf-8", stated)
    for candidate in filter(None, order):
        try:
            return data.decode(candidate), candidate
        except UnicodeDecodeError:
            continue
    return _guess(data, stated)


def known(name: str) -> str | None:
    """Python's name of an encoding as files declare it, widened to what such files really contain."""
    try:
        canonical = codecs.lookup(name.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return None
    if canonical in ("utf-7", "rot13", "punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined"):
        return None
    return _SUPERSETS.get(canonical, canonical)


def _wide(data: bytes) -> str | None:
    """UTF-16 without a byte-order mark: every other byte of mostly Latin text is NUL."""
    head = data[:4096]
    if len(head) < 4 or len(data) % 2:
        return None
    even, odd = head[0::2].count(0) / (len(head) / 2), head[1::2].count(0) / (len(head) / 2)
    if odd > 0.5 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.5 and odd < 0.05 else None


def _wide_by_letters(data: bytes) -> str | None:
    """UTF-16 without a byte-order mark in which hardly a letter is Latin: frequent letters of East Asian scripts are
    many in it, and in pairs of other encodings' bytes one in fifty."""
    for name in ("utf-16-le", "utf-16-be") if len(data) % 2 == 0 else ():
        letters = [character for character in data[:4096].decode(name, "replace") if character > "\x7f"]
        frequent = sum(character in _COMMON_WIDE for character in letters)
        if frequent > max(2.0, 0.3 * len(letters)):
            return name
    return None


def _guess(data: bytes, declared: str | None) -> tuple[str, str]:
    if (wide := _wide_by_letters(data)) is not None:
        return data.decode(wide, "replace"), wide
    best, best_score = "", 0.4
    sample = _sample(data)
    for name in ("gb18030", "cp932", "big5hkscs", "euc_jp", "cp949"):
        score = likelihood(sample, name) + (0.1 if name == declared else 0.0)
        if score > best_score:
            best, best_score = name, score
    if best:
        return data.decode(best, "replace"), best
    # A declared encoding with a few broken bytes is still the better guess.
    for name in filter(None, (declared, "utf-8")):
        text = data.decode(name, "replace")
        if text.count(REPLACEMENT) <= len(text) * 0.005 or (name == "utf-8" and _mostly_valid(text)):
            return text, name
    name = _single_byte(sample)
    return data.decode(name, "replace"), name


def _mostly_valid(text: str) -> bool:
    """Whether what was read as UTF-8 holds far more wide characters than broken bytes: other encodings' letters are
    sequences of UTF-8 by chance only."""
    return sum(character > "\x7f" for character in text) > 6 * text.count(REPLACEMENT)


def _sample(data: bytes) -> bytes:
    """The beginning, and if that is plain ASCII the surroundings of the first other bytes."""
    if len(data) <= SAMPLE:
        return data
    high = re.search(rb"[\x80-\xff]", data)
    start = data.rfind(b"\n", 0, high.start()) + 1 if high else 0
    if high and high.start() - start > SAMPLE // 2:
        start = high.start()
    sample = data[start : start + SAMPLE]
    return sample[: sample.rfind(b"\n") + 1] or sample


_HALF_WIDTH = re.compile("[ｦ-ｿ][ｦ-ﾟ]|[ｦ-ﾟ][ｦ-ｿ]")
"""Half-width katakana of both halves of their code; lower-case Russian in KOI8-R has but the other one."""
_SOUND_MARK = re.compile("[ｳｶ-ﾀﾃﾄﾊﾌ]ﾞ|ｰ")
"""What nearly all texts in half-width katakana have; the rarer pairs are words of upper-case Cyrillic in cp1251 too."""
_NEVER_HALF_WIDTH = re.compile("(?<![ｳｶ-ﾄﾊ-ﾎ])ﾞ|(?<![ﾊ-ﾎ])ﾟ|(?<![ｲｳｸｼｽﾁﾂﾃﾄﾌﾞ])[ｧ-ｫ]|(?<![ｦ-ﾟ])[ｬ-ｰ]")
"""Marks and small letters after what has none, words that begin with a small letter: other encodings' bytes."""


def likelihood(data: bytes, encoding: str) -> float:
    """0-1: how much the bytes look like text in an East Asian encoding; 0 when they are not valid in it."""
    decoded = _tolerant(data, encoding)
    if decoded is None:
        return 0.0
    characters = [character for character in decoded if character > "\x7f" and not _is_symbol(character)]
    if not characters:
        return 0.0
    frequent = _COMMON.get(encoding, set())
    score = sum(_weight(character, encoding) + (0.35 if character in frequent else 0.0) for character in characters)
    if encoding == "cp932" and _is_half_width(decoded):
        score += 1.05 * sum("ｦ" <= character <= "ﾟ" for character in characters)
    return score / len(characters) - 0.5 * _isolated(decoded)


def _is_half_width(text: str) -> bool:
    signs = (_HALF_WIDTH.search(text), _SOUND_MARK.search(text), not _NEVER_HALF_WIDTH.search(text))
    return all(signs)


def _is_symbol(character: str) -> bool:
    """Rules, stars, units and circled numbers stand in texts of all these encodings, and say nothing."""
    return character in "±×÷√≤≥≠→←↑↓" or (unicodedata.category(character) in ("So", "No") and character != REPLACEMENT)


def _tolerant(data: bytes, encoding: str) -> str | None:
    """Strictly decoded, but the sample may end within a character and one byte in a thousand may be broken."""
    text = data.decode(encoding, "replace")
    return None if text.count(REPLACEMENT) > 1 + len(data) // 1000 or _first_breaks(text) else text


def _first_breaks(text: str) -> bool:
    position = text.find(REPLACEMENT)
    return 0 <= position < len(text) - 3 and len(text) < 200


def _isolated(text: str) -> float:
    """Share of wide characters glued between Latin letters: an accented letter read as half a character."""
    wide = len(re.findall(r"[^\x00-\x7f]", text))
    glued = len(re.findall(r"(?<=[A-Za-z])[^\x00-\x7f](?![^\x00-\x7f])|(?<![^\x00-\x7f])[^\x00-\x7f](?=[a-z])", text))
    return glued / wide if wide else 0.0


def _weight(character: str, encoding: str) -> float:
    """How ordinary a character is in texts of an encoding."""
    code = ord(character)
    if character in "，。、；：？！“”‘’（）《》「」『』【】…—·％￥　・〜":
        return 0.8
    if 0xFF01 <= code <= 0xFF5E:
        return 0.6  # full-width letters and digits
    if 0xE000 <= code <= 0xF8FF:
        return -1.0  # unassigned
    if encoding in ("cp932", "euc_jp"):
        return _japanese(code, character, encoding)
    if encoding == "cp949":
        lead, trail = _pair(character, "cp949")
        return 0.69 if 0xB0 <= lead <= 0xC8 and trail >= 0xA1 else -0.3
    if not (0x4E00 <= code <= 0x9FFF):
        # Kana inside "Chinese" is Japanese in EUC; box drawing and Cyrillic are accidents.
        return -0.5 if 0x3040 <= code <= 0x30FF else (0.3 if 0x3400 <= code <= 0x4DBF or code > 0xFFFF else -0.2)
    lead, trail = _pair(character, "gb18030" if encoding == "gb18030" else "big5hkscs")
    if encoding == "gb18030":
        if trail < 0xA1 or not 0xB0 <= lead <= 0xF7:
            return 0.4 if 0xA4 <= _pair(character, "big5hkscs")[0] <= 0xC6 else -0.4  # traditional, where it is common
        return 0.7 if lead <= 0xD7 else 0.25
    return 0.6 if 0xA4 <= lead <= 0xC6 else (0.1 if 0xC9 <= lead <= 0xF9 else -0.4)


def _japanese(code: int, character: str, encoding: str) -> float:
    if 0x3041 <= code <= 0x30FF:
        return 1.0
    if 0xFF61 <= code <= 0xFF9F:
        # Half-width katakana are what other encodings' bytes look like in Shift-JIS.
        return -0.5
    if not 0x4E00 <= code <= 0x9FFF:
        return -0.2
    lead, _ = _pair(character, encoding)
    if encoding == "cp932":
        return 0.6 if 0x88 <= lead <= 0x98 else 0.15
    return 0.5 if 0xB0 <= lead <= 0xCF else 0.15


@lru_cache(maxsize=16384)
def _pair(character: str, encoding: str) -> tuple[int, int]:
    encoded = character.encode(encoding, "ignore")
    return (encoded[-2], encoded[-1]) if len(encoded) == 2 else (0, 0)


def _single_byte(sample: bytes) -> str:
    """cp1252 unless charset-normalizer is sure of something else: Western texts are the rule."""
    from charset_normalizer import from_bytes

    if sum(byte > 127 for byte in sample) < 8:
        return "cp1252"
    match = from_bytes(sample, cp_isolation=_SINGLE_BYTE).best()
    if match is None or (_western(sample) and match.language not in _NOT_WESTERN):
        return "cp1252"
    return known(match.encoding) or "cp1252"


_SINGLE_BYTE = ["cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256", "cp874", "iso8859_2"]
_NOT_WESTERN = {
    *("Polish", "Czech", "Hungarian", "Slovak", "Slovene", "Croatian", "Romanian", "Turkish", "Lithuanian", "Latvian"),
    *("Russian", "Ukrainian", "Bulgarian", "Serbian", "Kazakh", "Greek", "Arabic", "Farsi", "Hebrew", "Thai"),
}


def _western(sample: bytes) -> bool:
    """Few bytes above 127, none of those that cp1252 leaves undefined."""
    high = [byte for byte in sample if byte > 127]
    return len(high) < 0.25 * len(sample) and not any(byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D) for byte in high)
