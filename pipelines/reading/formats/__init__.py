"""Input formats: one module per format, each with a function that reads the rows of a file.

To read a new format, add a module here with a `Reader` and, if a file can tell its rows and columns without being read,
an `Inspector`. Then list it in `table.FORMATS`, and in `CorpusFormat` of `settings.corpus`.
"""
