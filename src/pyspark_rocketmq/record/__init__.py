"""The bytes of stored messages, without I/O.

``layout`` names the fields and flags, ``properties`` and ``compress`` are the two inner
encodings, ``message`` is the readable reference codec of one message at a time, and ``arrow``
decodes whole pull answers into Arrow, column by column, with the same results.
"""
