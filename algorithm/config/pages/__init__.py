"""Texts of generated pages."""
