"""``SagaMonitoring``, alarms of AWS's own metrics and actions of all alarms; ``Compliance``, logs and findings.

Imports every other room but ``cli``.
"""
