"""A population of learners that tunes itself: genes, ranking, draws, and the networks of a generation."""
