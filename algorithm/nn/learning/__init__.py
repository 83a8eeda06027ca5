"""Parameters in one storage, optimisers over it, and gradients of losses, eager or compiled."""
