"""One folder per technology."""
