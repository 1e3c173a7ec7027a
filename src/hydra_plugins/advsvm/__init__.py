"""Launchers of this project, found by Hydra in its plugin namespace."""
