"""The demo: a year of real flights through a PySpark pipeline, and the trail that it leaves."""
