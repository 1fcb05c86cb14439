"""Files with answers, as people have them, become samples."""
