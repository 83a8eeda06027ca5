"""What is measured of this project, and how it does beside others; see ``README.md``."""
