"""Label noise of labelled files: wrong labels by confident learning, near duplicates across files, planted triggers."""
