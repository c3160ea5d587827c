"""The functions of the cart's steps."""
