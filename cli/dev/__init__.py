"""The local stack: Marquez, the collector, and their monitoring, for a machine with Docker."""
