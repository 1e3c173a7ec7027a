"""The stages of an experiment: data → tune → train → attack → evaluate, each a function of typed inputs."""
