"""``SagaMonitoring``: alarms of AWS's own metrics, and actions of all alarms.

Imports every other room but ``cli``.
"""
