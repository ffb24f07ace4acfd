"""Experiments on top of everything else: the model against measurements (`validate`), rfabric
against papers (`reproduce`).
"""
