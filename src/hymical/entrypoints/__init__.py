"""How people and machines get in."""
