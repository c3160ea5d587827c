"""Cost of a saga, from its description alone: no AWS, no CDK, no measurement.

What is used is counted (``usage``, ``compensation``), multiplied with one table of prices (``prices``, ``bill``), held
against an account's quotas (``quotas``) and with other designs (``compare``).
"""
