"""Settings, opened resources and the container: the only place that names an adapter."""
