"""The trained network behind the seam of `predict.generation`: draws samples and scores them."""
