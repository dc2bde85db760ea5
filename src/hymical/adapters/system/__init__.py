"""What the operating system provides."""
