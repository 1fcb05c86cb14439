"""What can be done from the command line, a few verbs per file; heavy parts are imported inside the verbs."""
