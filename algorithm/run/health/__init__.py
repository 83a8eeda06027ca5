"""What is surely going wrong with a training."""
