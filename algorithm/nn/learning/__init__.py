"""Parameters in one storage, optimisers over it, and the gradients of a loss, compiled or not."""
