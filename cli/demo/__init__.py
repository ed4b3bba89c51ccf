"""The demo: a year of real flights in a PySpark pipeline, and the trail that they leave."""
