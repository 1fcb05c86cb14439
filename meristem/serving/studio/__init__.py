"""The studio: a page with the runs of a folder, live while they train, and a place to try them."""
