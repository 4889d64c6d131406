"""PDF -> blocks: text runs, lines, reading order, headings, tables, figures."""
