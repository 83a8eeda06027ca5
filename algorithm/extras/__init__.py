"""One package for each optional feature; outside of them, only ``core/extras.py`` names them."""
