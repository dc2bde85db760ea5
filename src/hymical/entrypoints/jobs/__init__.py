"""Types of jobs: each in a file of its own, which is found by itself."""
