"""Training on prepared data; needs torch and numpy alone."""
