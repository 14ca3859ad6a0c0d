"""The two jobs of tokenmill on Apache Beam: train a tokenizer, tokenize a corpus into training shards."""

import logging

# Beam logs a warning on import where Google's client libraries are not installed, which are not needed here.
logging.disable(logging.WARNING)
import apache_beam.io  # noqa: E402, F401

logging.disable(logging.NOTSET)
