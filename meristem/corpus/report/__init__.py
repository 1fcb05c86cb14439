"""The corpus report: sizes, dropped documents and advice, in the terminal and as an HTML page."""
