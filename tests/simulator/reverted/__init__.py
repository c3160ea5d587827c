"""Fixes of defects, reverted one at a time: does the simulator find the defect?"""
