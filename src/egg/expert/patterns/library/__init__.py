"""What stays a PyTorch call."""
