"""One family per file: settings, class, named sizes, its own heads."""
