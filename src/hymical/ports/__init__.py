"""What the hexagon needs from the world, named by role."""
