"""What one site trains: the neurons it has, its parameters and optimizer state, and what all sites share."""
