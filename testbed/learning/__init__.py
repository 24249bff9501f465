"""What is learned and from what: datasets, models, gradients. Knows nothing of containers."""
