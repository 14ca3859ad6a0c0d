"""The HTML report about a tokenizer: its data, charts and page."""
