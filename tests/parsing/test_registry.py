from __future__ import annotations

import pytest

from rag_cluster.errors import InvalidSettingError, MissingDependencyError, UnsupportedDocumentTypeError
from rag_cluster.parsing.detection import EXPECTED
from rag_cluster.parsing.legacy import CONVERTED
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.registry import BUILT_IN, ParserRegistry


@pytest.mark.parametrize("extension", sorted(BUILT_IN))
def test_every_built_in_extension_has_a_parser_that_claims_it(extension: str) -> None:
    parser = ParserRegistry().parser_for(f"file{extension.upper()}")
    assert extension in parser.extensions and parser.name and parser.version


def test_detection_and_registry_know_the_same_extensions() -> None:
    assert set(EXPECTED) == set(BUILT_IN) | set(CONVERTED)


def test_an_unknown_extension_is_named() -> None:
    with pytest.raises(UnsupportedDocumentTypeError, match=r"'\.xyz'"):
        ParserRegistry().info("a.xyz")
    with pytest.raises(UnsupportedDocumentTypeError, match="without an extension"):
        ParserRegistry().info("README")


def test_settings_add_and_override_parsers() -> None:
    registry = ParserRegistry({".json": "rag_cluster.parsing.text:TextParser", ".bad": "tests.parsing.hostile:Hostile"})
    assert registry.info("a.JSON").name == "text"
    assert registry.info("a.bad").version == "7"
    assert {".json", ".bad", ".pdf"} <= registry.extensions


def test_a_parser_setting_of_another_form_is_refused() -> None:
    with pytest.raises(InvalidSettingError):
        ParserRegistry({"json": "module.Class"})


def test_a_parser_that_is_not_there_says_so() -> None:
    with pytest.raises(MissingDependencyError, match="no_such_module"):
        ParserRegistry({".x": "no_such_module:Parser"}).info("a.x")
    with pytest.raises(InvalidSettingError, match="NoClass"):
        ParserRegistry({".x": "rag_cluster.parsing.text:NoClass"}).info("a.x")


def test_the_ocr_mode_is_told_where_it_matters() -> None:
    auto, off, force = (ParserRegistry(ocr=mode) for mode in (OcrMode.AUTO, OcrMode.OFF, OcrMode.FORCE))
    assert [registry.info("a.png").recognition for registry in (auto, off, force)] == ["auto", "off", "force"]
    assert auto.info("a.pdf").version == off.info("a.pdf").version != force.info("a.pdf").version
    assert auto.info("a.txt") == off.info("a.txt") == force.info("a.txt")


def test_deferred_recognition_gives_the_same_content_as_recognition_at_once() -> None:
    assert ParserRegistry(ocr=OcrMode.DEFERRED).info("a.pdf") == ParserRegistry(ocr=OcrMode.AUTO).info("a.pdf")


def test_a_parser_that_is_to_recognise_later_gets_no_recogniser() -> None:
    for registry in (ParserRegistry(postpone_ocr=True), ParserRegistry(ocr=OcrMode.DEFERRED)):
        assert registry.parser_for("a.pdf")._recognizer is None  # type: ignore[attr-defined]
