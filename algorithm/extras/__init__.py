"""Folders of what a user asks for by name or installs as an extra; ``core/extras.py`` alone names them."""
