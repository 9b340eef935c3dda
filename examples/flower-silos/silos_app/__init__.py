"""Tabular data in ten silos, each record protected by noise that the silos share."""
