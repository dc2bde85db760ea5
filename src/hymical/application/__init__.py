"""Use cases: one small callable per verb, ports as its fields."""
