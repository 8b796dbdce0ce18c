"""Steps of queries that take rows back: what they compute, what a key keeps, and their operators in Spark.

Python workers import these modules, and so no parser.
"""
