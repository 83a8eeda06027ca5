"""A population of learners that tunes itself: generations of runs, placed and kept running by Ray."""
