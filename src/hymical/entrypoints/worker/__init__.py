"""The worker: delivers webhooks."""
