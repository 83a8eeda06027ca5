"""Networks that choose actions: by numpy where that is certain to be the same as by torch."""
