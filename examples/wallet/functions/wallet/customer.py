"""The customer's face: its handlers, each of its own function."""

from saga_runtime import direct_operation

from .operations import pay, transfer

payments = direct_operation(pay)
transfers = direct_operation(transfer)
