"""Model families, one per file: settings, backbone class and heads."""
