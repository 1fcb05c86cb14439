"""What people click on: tables of it, and a model that expects how often they would."""
