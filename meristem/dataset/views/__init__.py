"""Dataset views, one per file: how a token stream is cut into rows; `find_class("dataset.views", "windows")`."""
