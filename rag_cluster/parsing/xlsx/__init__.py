"""XLSX by its XML, streamed: values as displayed, merges filled, every table with its cells."""

from __future__ import annotations

import re

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.illustrated import IllustratedParser
from rag_cluster.parsing.ooxml import Package
from rag_cluster.parsing.pages import each_page, still_there
from rag_cluster.parsing.xlsx.defined import DefinedTables, defined_tables
from rag_cluster.parsing.xlsx.drawings import add_drawings
from rag_cluster.parsing.xlsx.regions import SheetTables
from rag_cluster.parsing.xlsx.sheet import SheetReader
from rag_cluster.parsing.xlsx.workbook import Sheet, Workbook

# Names that programs give say nothing about a sheet.
_DEFAULT_NAME = re.compile(
    r"^(?:sheet|工作表|tabelle|feuil|hoja|foglio|planilha|blad|лист|シート|chart|图表)\s*\d*$", re.IGNORECASE
)

ROWS_PER_SIGN = 5000
"""Rows between two signs of life."""


class XlsxParser(IllustratedParser):
    """Excel workbooks, strict or transitional, with or without macros.

    Hidden sheets, rows and columns and comments are left out. Formulas show their stored value, else the formula;
    links show their text. Defined tables are tables as they say; others are found by their blank borders.
    Every block has its sheet and cells; a sheet with a name of its own opens a section of that name.
    """

    name = "xlsx"
    version = "5"
    extensions = frozenset({".xlsx", ".xlsm", ".xltx", ".xltm"})

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Blocks sheet by sheet: tables, titles and loose cells top to bottom, then what is drawn on the sheet."""
        builder = self._builder(source)
        with Package(source, self._limits, builder.warn) as package:
            workbook = Workbook(package)
            names = [sheet.name for sheet in workbook.sheets]
            for number in each_page(source, len(names), lambda number: f"Sheet {names[number - 1]!r}"):
                self._sheet(workbook, workbook.sheets[number - 1], builder)
            package.check_found(builder.has_blocks)
            return builder.build({**package.properties(), "sheets": names})

    def _sheet(self, workbook: Workbook, sheet: Sheet, builder: BlockBuilder) -> None:
        builder.reset_headings()
        opened = bool(_DEFAULT_NAME.match(sheet.name))
        if sheet.kind == "worksheet":
            reader = SheetReader(workbook, sheet.part)
            defined = list(defined_tables(workbook.package, sheet.part))
            tables = DefinedTables(SheetTables(builder, sheet.name, reader.hidden), defined)
            for row in reader.rows():
                if row.number % ROWS_PER_SIGN == 0:
                    still_there()
                if not opened:
                    builder.heading(sheet.name, 1, SourceLocator(sheet=sheet.name))
                    opened = True
                tables.add(row)
            tables.close()
            if reader.formulas_without_value:
                builder.warn(f"{reader.formulas_without_value} formulas without a stored value in {sheet.name!r}")
        add_drawings(builder, workbook.package, sheet.part, sheet.name)


__all__ = ["XlsxParser"]
