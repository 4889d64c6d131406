"""PDF: words and shapes from pdfium -> layout -> furniture, paragraphs, headings -> blocks.

document, units, geometry -> text, shapes, annotations, links, footnotes
-> page (tagged, panels, layout, tables, alignment, charts, figures | scans) -> furniture
-> assembly (paragraphs, headings, continuation, captions) -> places, emission -> parser
"""

from rag_cluster.parsing.pdf.parser import PdfParser

__all__ = ["PdfParser"]
