"""Learning from demonstrations besides rewards: cloning, batches with demonstrated windows."""
