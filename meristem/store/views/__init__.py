"""One way of cutting the stream into rows per file; `find("store.views", "windows")` is `Windows`."""
