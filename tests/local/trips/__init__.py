"""Trips that run inline: their steps run in branches, and for each seat."""
