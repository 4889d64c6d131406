"""PDF: words and shapes from pdfium -> layout -> furniture, paragraphs, headings -> blocks.

document, geometry -> text, shapes -> page (layout, tables, alignment, figures, forms | scans) -> furniture
-> paragraphs -> headings, captions -> parser
"""

from rag_cluster.parsing.pdf.parser import PdfParser

__all__ = ["PdfParser"]
