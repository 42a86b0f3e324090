"""The training step: forward, loss, backward and update of a model as one graph."""
