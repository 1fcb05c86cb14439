"""The studio: a web page with the runs of a folder, live training curves, comparison, and a playground."""
